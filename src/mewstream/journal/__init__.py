"""The durable log under the gateway.

The gateway knows nothing of how records are kept: it uses :mod:`.interface`, :mod:`.opening`, :mod:`.settings`,
:mod:`.errors` and :mod:`.memory` alone, which an import contract enforces.
"""
