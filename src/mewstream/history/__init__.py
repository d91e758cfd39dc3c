"""What happened in a space, as rows: one pass over its records in the order of the log, on plain Python and Arrow.

The control records of a space are few, and one fold over them (:mod:`.fold`) knows at each of them who is here, which
streams are open and who has which right. Frames are many and independent of each other: columns of them are placed
into the intervals that the fold has made (:mod:`.flow`). What is open goes on in the next batch: the state of a space
(:mod:`.state`) after a batch is a pure function of its state before and of the records of the batch.

Nothing here knows Spark, files or tables: rows are dictionaries under the names of tables, times are microseconds.
"""
