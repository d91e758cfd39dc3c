"""Who may do what on a stream, said a second time and as plainly as possible.

An independent model of DESIGN.md's decisions 1 to 9, 12, 13, 14, 16, 17, 18, 22 and 31: dicts and sets, no
classes of the implementation, no records, no index, no cache. Each method plays one command and
returns the *facts* that must follow, in order, as tuples; a refusal is one fact. One fact is one
record, so the model knows every ``seq`` without being told.

Times are microseconds. What is due does not happen by itself: it happens in :meth:`Model.tick`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

Fact = tuple[Any, ...]


class Model:
    def __init__(
        self,
        may: dict[str, set[str]],
        *,
        space: str,
        reconnect_grace: int,
        suspend_for: int,
        start_timeout: int,
        on_owner_leave: str,
        owner_leave_grace: int,
    ) -> None:
        self.may = may
        self.space = space
        """participant -> what it may do anywhere: ``request``, ``announce``, ``manage``, ``kick``."""
        self.reconnect_grace = reconnect_grace
        self.suspend_for = suspend_for
        self.start_timeout = start_timeout
        self.on_owner_leave = on_owner_leave
        self.owner_leave_grace = owner_leave_grace
        self.epoch = ""
        self.seq = 0
        self.ts = 0
        self.opened = 0
        self.people: dict[str, dict[str, Any]] = {}
        """Those present: ``session``, ``counts`` (the session since which its sequence numbers
        grow) and ``until`` (None while connected)."""
        self.streams: dict[str, dict[str, Any]] = {}
        """The ``writers`` of each in the order in which everyone is told: the owner first."""
        self.grants = 0
        """How often a right was given: who got one first has stood longest."""

    # -- what can be asked of the model ------------------------------------------------------------

    def present(self, who: str) -> bool:
        return who in self.people

    def connected(self, who: str) -> bool:
        return who in self.people and self.people[who]["until"] is None

    def find(self, name: str) -> str | None:
        for id, stream in self.streams.items():
            if name in (id, stream["alias"]):
                return id
        return None

    def recipients(self, id: str) -> set[str]:
        readers = self.streams[id]["readers"]
        may = {who for who in self.people if self.connected(who) and (readers is None or who in readers)}
        return {who for who in may if self.wants(who, id)}

    def wants(self, who: str, id: str) -> bool:
        """A wish is a name, or a glob over the names with the space before them; no wishes are not the same as None."""
        wishes = self.people[who]["wishes"]
        names = {id, self.streams[id]["alias"]} - {None}
        return wishes is None or any(
            wish in names or any(fnmatchcase(f"{self.space}/{name}", wish) for name in names) for wish in wishes
        )

    def due(self) -> list[tuple[int, tuple[str, str, str]]]:
        """Everything that time will cause, the earliest first; of two at once, the first by name."""
        found = [(each["until"], ("rejoin", who, "")) for who, each in self.people.items() if each["until"] is not None]
        for id, stream in self.streams.items():
            found += [
                (right["expires_at"], ("expire", id, writer))
                for writer, right in stream["writers"].items()
                if right["expires_at"] is not None
            ]
            timers = (("start_by", "start"), ("owner_due", "owner"), ("idle_due", "idle"))
            found += [(stream[what], (name, id, "")) for what, name in timers]
        return sorted(each for each in found if each[0] is not None)

    # -- the space and who is in it ----------------------------------------------------------------

    def start(self, now: int, epoch: str) -> list[Fact]:
        self.epoch = epoch
        started = self._written(now, [("space-started", epoch)])
        for id in self.streams:
            self._touch(id)
        return started

    def join(
        self, now: int, who: str, *, continues: bool = False, chooses: bool = False, wishes: set[str] | None = None
    ) -> list[Fact]:
        """``wishes`` None: a client that chooses says nothing, and keeps what it wished if it comes back."""
        how = "new" if not self.present(who) else "replaced" if self.connected(who) else "resumed"
        session = self.seq + 1
        counts = self.people[who]["counts"] if continues and self.present(who) else session
        if wishes is None and (how == "resumed" or (how == "replaced" and continues)):
            wishes = self.people[who]["wishes"]
        wishes = set(wishes or ()) if chooses else None
        self.people.setdefault(who, {}).update(session=session, counts=counts, until=None, wishes=wishes)
        facts: list[Fact] = [("joined", who, how)]
        for id, stream in self.streams.items():
            if stream["owner"] == who:
                stream["owner_due"] = None
            self.grants += 1
            if who in stream["auto"] and who not in stream["writers"]:
                self._set_right(id, who)
                facts.append(("granted", id, who, set(stream["writers"]), "auto_grant"))
        return self._written(now, facts)

    def subscribe(self, now: int, sender: str, wishes: set[str]) -> list[Fact]:
        return self._wish(now, sender, wishes, "subscribed")

    def unsubscribe(self, now: int, sender: str, wishes: set[str]) -> list[Fact]:
        return self._wish(now, sender, wishes, "unsubscribed")

    def _wish(self, now: int, sender: str, wishes: set[str], what: str) -> list[Fact]:
        if self.people[sender]["wishes"] is None:
            return self.refuse(now, sender, "invalid_operation")
        if what == "subscribed":
            self.people[sender]["wishes"] |= wishes
        else:
            self.people[sender]["wishes"] -= wishes
        return self._written(now, [(what, sender)])

    def disconnect(self, now: int, who: str, session: int, *, closed: bool = False) -> list[Fact]:
        """Of a session that is over, or that lost its connection before, this says nothing new."""
        if not self.connected(who) or self.people[who]["session"] != session:
            return []
        if self.reconnect_grace > 0 and not closed:
            return self._suspend(now, who, self.reconnect_grace)
        return self._leave(now, who, "disconnected")

    def suspend(self, now: int, who: str) -> list[Fact]:
        """One who was suspended before gets the time again: nobody can come while the gateway is away."""
        return self._suspend(now, who, self.suspend_for) if self.present(who) else []

    def kick(self, now: int, sender: str, who: str) -> list[Fact]:
        if "kick" not in self.may[sender]:
            return self.refuse(now, sender, "capability_violation")
        if not self.present(who):
            return self.refuse(now, sender, "participant_not_found")
        return self._written(now, [("envelope", sender)]) + self._leave(now, who, "kicked")

    def tick(self, now: int) -> list[Fact]:
        now = max(now, self.ts)
        due = self.due()
        if not due or due[0][0] > now:
            return []
        what, name, writer = due[0][1]
        if what == "rejoin":
            return self._leave(now, name, "disconnected")
        stream = self.streams[name]
        if what == "expire":
            return self._written(now, self._revoke(name, writer, "expired"))
        if what == "owner" and stream["on_owner_leave"] == "transfer":
            heirs = [each for each in stream["writers"] if each != stream["owner"] and self.connected(each)]
            if heirs:
                heir = min(heirs, key=lambda each: stream["writers"][each]["since"])
                return self._written(now, [self._hand_over(name, heir, keep=False, reason="owner_left")])
        del self.streams[name]
        return self._written(now, [("ended", name, "failed" if what == "start" else "closed")])

    # -- the life of a stream ----------------------------------------------------------------------

    def open(
        self,
        now: int,
        sender: str,
        *,
        request_id: str,
        live: bool,
        target: list[str],
        auto: list[str],
        alias: str | None,
        on_owner_leave: str | None,
        owner_leave_grace: int | None,
        known: set[str],
        if_exists: str | None = None,
        idle_timeout: int | None = None,
    ) -> list[Fact]:
        """``alias`` is None where what was wished is no valid one; ``known`` are all who may come."""
        if if_exists is not None and alias is None:
            return self.refuse(now, sender, "validation_error")
        if ("request" if live else "announce") not in self.may[sender]:
            return self.refuse(now, sender, "capability_violation")
        taken = self.find(alias) if alias is not None else None
        owner = self.streams[taken]["owner"] if taken is not None else None
        if taken is not None and (if_exists == "error" or (if_exists == "reuse" and owner != sender)):
            return self.refuse(now, sender, "already_exists")
        if taken is not None and if_exists == "reuse":
            return self._written(now, [("reused", taken, sender)])
        replaced = taken if if_exists == "replace" else None
        if replaced is not None and owner != sender and "manage" not in self.may[sender]:
            return self.refuse(now, sender, "unauthorized")
        if any(each not in known for each in target):
            return self.refuse(now, sender, "target_not_found")
        now = max(now, self.ts)
        self.opened += 1
        id = f"stream-{self.opened}"
        members = [each for each in dict.fromkeys(auto) if each != sender and self.present(each)]
        ended: list[Fact] = []
        if replaced is not None:
            del self.streams[replaced]
            ended, taken = [("ended", replaced, "closed")], None
        if taken is not None:
            alias = None
        self.streams[id] = {
            "owner": sender,
            "live": live,
            "writers": {},
            "readers": set(target) if target else None,
            "auto": set(auto),
            "alias": alias,
            "names": {request_id, f"gw-{self.epoch}-{self.seq + 2 + len(ended)}"},
            "on_owner_leave": on_owner_leave or self.on_owner_leave,
            "owner_leave_grace": self.owner_leave_grace if owner_leave_grace is None else owner_leave_grace,
            "start_by": None if live or not self.start_timeout else now + self.start_timeout,
            "owner_due": None,
            "idle": idle_timeout,
            "idle_due": None,
            "sequences": {},
            "wishes": {},
            "frames": 0,
        }
        self.grants += 1
        for writer in (sender, *members):
            self._set_right(id, writer)
        writers = {sender, *members}
        # Every client of the model knows extensions, so it is told who has the name that it did not get.
        opened = ("opened", id, sender, live, alias, writers, taken)
        facts: list[Fact] = [("envelope", sender), *ended, opened]
        return self._written(now, facts + [("granted", id, member, writers, "auto_grant") for member in members])

    def begin(self, now: int, sender: str, name: str, *, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw, manager=False)
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if self.streams[id]["live"]:
            return self.refuse(now, sender, "invalid_operation")
        self.streams[id].update(live=True, start_by=None)
        return self._written(now, [("envelope", sender), ("started", id)])

    def end(self, now: int, sender: str, name: str, how: str, *, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw, manager=how == "closed")
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if how == "completed" and not self.streams[id]["live"]:
            return self.refuse(now, sender, "invalid_operation")
        del self.streams[id]
        return self._written(now, [("envelope", sender), ("ended", id, how)])

    def correlated(self, name: str) -> list[str]:
        """The streams whose request or open has this id: ids are unique to a participant only."""
        return [id for id, stream in self.streams.items() if name in stream["names"]]

    def close_by_correlation(self, now: int, sender: str, name: str) -> list[Fact]:
        found = self.correlated(name)
        if not found:
            return self.refuse(now, sender, "stream_not_found")
        own = [id for id in found if self.streams[id]["owner"] == sender]
        return self.end(now, sender, (own or found)[0], "closed")

    # -- rights ------------------------------------------------------------------------------------

    def grant(
        self,
        now: int,
        sender: str,
        name: str,
        who: str,
        *,
        expires_at: int | None,
        max_frames: int | None,
        replaces: str | None = None,
        depth: int = 0,
        most: int | None = None,
        flaw: str | None = None,
    ) -> list[Fact]:
        """``depth`` and ``most`` are those of ``delegate``: 0 without one."""
        id = self._checked(sender, name, flaw, delegate_at=max(now, self.ts))
        if id not in self.streams:
            return self.refuse(now, sender, id)
        parent = sender if self._is_only_delegate(id, sender) else None
        if replaces is not None:
            if replaces in (self.streams[id]["owner"], who) or not self._writes(id, replaces):
                return self.refuse(now, sender, "invalid_operation")
            if parent is not None and replaces not in self._below(id, parent):
                return self.refuse(now, sender, "unauthorized")
        stream, conditional = self.streams[id], expires_at is not None or max_frames is not None
        if who == stream["owner"] and (conditional or depth):
            return self.refuse(now, sender, "invalid_operation")
        if expires_at is not None and expires_at <= max(now, self.ts):
            return self.refuse(now, sender, "invalid_operation")
        gone = {replaces, *self._below(id, replaces)} if replaces is not None else set()
        held = None if who in gone else stream["writers"].get(who)
        if held is not None and held["parent"] != parent:
            return self.refuse(now, sender, "invalid_operation")
        if parent is not None:
            above = [stream["writers"][each] for each in self._chain(id, parent)]
            if any(
                (expires_at is not None and each["expires_at"] is not None and expires_at > each["expires_at"])
                or (max_frames is not None and each["frames_left"] is not None and max_frames > each["frames_left"])
                for each in above
            ):
                return self.refuse(now, sender, "invalid_operation")
            own = above[0]
            if depth >= own["depth"] or (own["most"] is not None and depth and (most or 0) > own["most"]):
                return self.refuse(now, sender, "invalid_operation")
            for each in self._chain(id, parent):
                bound = stream["writers"][each]["most"]
                if held is None and bound is not None and len(set(self._below(id, each)) - gone) >= bound:
                    return self.refuse(now, sender, "limit_exceeded")
        if not self.present(who):
            return self.refuse(now, sender, "participant_not_found")
        if conditional:
            # What was given under conditions must not come back without them.
            stream["auto"].discard(who)
        facts: list[Fact] = [("envelope", sender)]
        if replaces is not None:
            stream["auto"].discard(replaces)
            facts += self._revoke(id, replaces, None)
        self.grants += 1
        # Granted again, it may cover less than is below it.
        levels = {each: len(self._chain(id, each)) - len(self._chain(id, who)) for each in self._below(id, who)}
        ended = [each for each, level in levels.items() if level > depth]
        for each in ended:
            del stream["writers"][each]
        self._set_right(id, who, expires_at, max_frames, parent=parent, depth=depth, most=most)
        for each, level in levels.items():
            if each not in ended:
                right = stream["writers"][each]
                right["depth"] = min(right["depth"], depth - level)
                right["most"] = right["most"] if right["depth"] else None
        writers = set(stream["writers"])
        facts.append(("granted", id, who, writers, None))
        return self._written(now, [*facts, *(("revoked", id, each, writers, "delegation_ended") for each in ended)])

    def ask(self, now: int, sender: str, name: str, reason: str | None, *, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw, anyone=True)
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if self._writes(id, sender):
            return self.refuse(now, sender, "invalid_operation")
        if not self.present(sender):
            return self.refuse(now, sender, "participant_not_found")
        self.streams[id]["wishes"].setdefault(sender, {"ts": max(now, self.ts)})["reason"] = reason
        return self._written(now, [("envelope", sender), ("asked", id, sender, reason)])

    def deny(self, now: int, sender: str, name: str, who: str, *, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw)
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if self.streams[id]["wishes"].pop(who, None) is None:
            return self.refuse(now, sender, "invalid_operation")
        return self._written(now, [("envelope", sender), ("denied", id, who)])

    def revoke(self, now: int, sender: str, name: str, who: str, *, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw, delegate_at=max(now, self.ts))
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if who == self.streams[id]["owner"]:
            return self.refuse(now, sender, "invalid_operation")
        if self._is_only_delegate(id, sender) and who not in self._below(id, sender):
            return self.refuse(now, sender, "unauthorized")
        self.streams[id]["auto"].discard(who)
        return self._written(now, [("envelope", sender), *self._revoke(id, who, None)])

    def transfer(
        self, now: int, sender: str, name: str, who: str, *, retain: bool, flaw: str | None = None
    ) -> list[Fact]:
        id = self._checked(sender, name, flaw)
        if id not in self.streams:
            return self.refuse(now, sender, id)
        if not self.present(who):
            return self.refuse(now, sender, "participant_not_found")
        # One who is gone is no writer (decision 6): only the owner's place can be kept for it.
        keep = retain and self.present(self.streams[id]["owner"])
        return self._written(now, [("envelope", sender), self._hand_over(id, who, keep=keep, reason=None)])

    def read(self, now: int, sender: str, name: str, who: str, *, allow: bool, flaw: str | None = None) -> list[Fact]:
        id = self._checked(sender, name, flaw)
        if id not in self.streams:
            return self.refuse(now, sender, id)
        stream = self.streams[id]
        if allow:
            if not self.present(who):
                return self.refuse(now, sender, "participant_not_found")
            if stream["readers"] is not None:
                stream["readers"].add(who)
        else:
            readers = set(self.people) if stream["readers"] is None else stream["readers"]
            stream["readers"] = readers - {who}
        readers = None if stream["readers"] is None else set(stream["readers"])
        what = "read-granted" if allow else "read-revoked"
        return self._written(now, [("envelope", sender), (what, id, who, readers)])

    # -- what flows --------------------------------------------------------------------------------

    def frame(
        self, now: int, sender: str, name: str, *, sequence: int | None = None, flaw: str | None = None
    ) -> list[Fact]:
        """A raw frame, or (with a ``sequence``) a ``stream/data``."""
        now = max(now, self.ts)
        if flaw == "shape":
            return self.refuse(now, sender, "validation_error")
        id = self.find(name)
        if id is None:
            return self.refuse(now, sender, "stream_not_found")
        if flaw == "namespace":
            return self.refuse(now, sender, "validation_error")
        stream = self.streams[id]
        right = stream["writers"].get(sender)
        if right is None:
            return self.refuse(now, sender, "unauthorized_stream_write")
        expired = self._expired(id, sender, now)
        if expired:
            told = self._written(now, self._revoke(id, expired[-1], "expired"))
            return told + self.refuse(now, sender, "unauthorized_stream_write")
        if not stream["live"]:
            return self.refuse(now, sender, "invalid_operation")
        gap = 0
        if sequence is not None:
            counter = (sender, self.people[sender]["counts"] if self.present(sender) else 0)
            last = stream["sequences"].get(counter)
            if last is not None and sequence <= last:
                return self.refuse(now, sender, "sequence_regression")
            gap = 0 if last is None else sequence - last - 1
            stream["sequences"][counter] = sequence
        stream["frames"] += 1
        readers = None if stream["readers"] is None else set(stream["readers"])
        facts: list[Fact] = [("frame", id, sender, stream["frames"], readers, len(self.recipients(id)), sequence, gap)]
        for each in self._chain(id, sender):
            if stream["writers"][each]["frames_left"] is not None:
                stream["writers"][each]["frames_left"] -= 1
        used_up = [each for each in self._chain(id, sender) if stream["writers"][each]["frames_left"] == 0]
        if used_up:
            facts += self._revoke(id, used_up[-1], "max_frames")
        return self._written(now, facts)

    # -- the parts ---------------------------------------------------------------------------------

    def _writes(self, id: str, who: str) -> bool:
        return who in self.streams[id]["writers"]

    def _chain(self, id: str, who: str) -> list[str]:
        """A writer, and those from whom it holds its right."""
        chain = [who] if self._writes(id, who) else []
        while chain and (parent := self.streams[id]["writers"][chain[-1]]["parent"]) is not None:
            chain.append(parent)
        return chain

    def _below(self, id: str, who: str) -> list[str]:
        found: list[str] = []
        level = [who]
        while level:
            rights = self.streams[id]["writers"].items()
            level = [each for above in level for each, right in rights if right["parent"] == above]
            found += level
        return found

    def _expired(self, id: str, who: str, now: int) -> list[str]:
        times = {each: self.streams[id]["writers"][each]["expires_at"] for each in self._chain(id, who)}
        return [each for each, time in times.items() if time is not None and now >= time]

    def _is_only_delegate(self, id: str, who: str) -> bool:
        return who != self.streams[id]["owner"] and "manage" not in self.may[who]

    def _checked(
        self,
        sender: str,
        name: str,
        flaw: str | None,
        *,
        manager: bool = True,
        anyone: bool = False,
        delegate_at: int | None = None,
    ) -> str:
        """The stream's id, or the code of the first check that fails: shape, existence, right."""
        if flaw == "shape":
            return "validation_error"
        id = self.find(name)
        if id is None:
            return "stream_not_found"
        if flaw == "namespace":
            return "validation_error"
        if anyone or sender == self.streams[id]["owner"] or (manager and "manage" in self.may[sender]):
            return id
        right = self.streams[id]["writers"].get(sender)
        if delegate_at is None or right is None or not right["depth"] or self._expired(id, sender, delegate_at):
            return "unauthorized"
        return id

    def refuse(self, now: int, sender: str, code: str) -> list[Fact]:
        return self._written(now, [("refused", sender, code)])

    def _written(self, now: int, facts: list[Fact]) -> list[Fact]:
        self.seq += len(facts)
        if facts:
            self.ts = max(now, self.ts)
        for what, id, *_ in facts:
            if id in self.streams and what != "reused":
                self._touch(id)
        return facts

    def _touch(self, id: str) -> None:
        stream = self.streams[id]
        stream["idle_due"] = self.ts + stream["idle"] if stream["idle"] else None

    def _suspend(self, now: int, who: str, time: int) -> list[Fact]:
        until = max(now, self.ts) + time
        self.people[who]["until"] = until
        return self._written(now, [("suspended", who, until)])

    def _leave(self, now: int, who: str, reason: str) -> list[Fact]:
        now = max(now, self.ts)
        del self.people[who]
        facts: list[Fact] = [("left", who, reason)]
        for id, stream in self.streams.items():
            stream["wishes"].pop(who, None)
            if stream["owner"] == who:
                if stream["on_owner_leave"] != "keep":
                    stream["owner_due"] = now + stream["owner_leave_grace"]
            elif who in stream["writers"]:
                facts += self._revoke(id, who, reason)
        return self._written(now, facts)

    def _set_right(
        self,
        id: str,
        who: str,
        expires_at: int | None = None,
        frames_left: int | None = None,
        *,
        parent: str | None = None,
        depth: int = 0,
        most: int | None = None,
    ) -> None:
        """A right that is given again keeps its place in the order of writers. Whoever wished for it has it now."""
        self.streams[id]["wishes"].pop(who, None)
        right = self.streams[id]["writers"].setdefault(who, {"since": self.grants})
        right.update(expires_at=expires_at, frames_left=frames_left, parent=parent, depth=depth, most=most)

    def _revoke(self, id: str, who: str, reason: str | None) -> list[Fact]:
        """What is below it ends at the same record, and is told after it."""
        ended = self._below(id, who)
        for each in (who, *ended):
            self.streams[id]["writers"].pop(each, None)
        writers = set(self.streams[id]["writers"])
        return [
            ("revoked", id, who, writers, reason),
            *(("revoked", id, each, writers, "delegation_ended") for each in ended),
        ]

    def _hand_over(self, id: str, who: str, *, keep: bool, reason: str | None) -> Fact:
        stream = self.streams[id]
        previous = stream["owner"]
        if previous != who and not keep:
            # Decision 3: only the new owner may give it back.
            del stream["writers"][previous]
            stream["auto"].discard(previous)
        self.grants += 1
        self._set_right(id, who)
        for right in stream["writers"].values():
            # What the new owner granted as a delegate is a grant of the owner now.
            right["parent"] = None if right["parent"] == who else right["parent"]
        first = [each for each in (who, previous) if each in stream["writers"]]
        stream["writers"] = {each: stream["writers"][each] for each in dict.fromkeys([*first, *stream["writers"]])}
        stream.update(owner=who, owner_due=None)
        return ("transferred", id, previous, who, set(stream["writers"]), reason)
