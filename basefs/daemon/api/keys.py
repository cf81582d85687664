"""What commands can ask about keys, and have done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from basefs.errors import NotPermitted, UsageError
from basefs.log.keys import parse_public_key
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.keyholder import GrantPlan
from basefs.view.permissions import Grant
from basefs.view.tree import Node

Json = Any


class KeyServices:
    """Grants and revokes, planned or done."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def do_keys(self, path: str | None = None, every: bool = False) -> Json:
        """The grants in force, all or those that count at one path; with `every` also those that count no more."""
        granted = self._replica.plan(lambda author: author.past.grants())
        if path is not None:
            at = parse(path)
            self._replica.attributes(at)
            granted = [one for one in granted if at[: len(one.path)] == one.path]
        mine = {key.fingerprint for key in self._replica.keys}
        key_names = self._replica.key_names()
        return [
            {
                "path": to_text(one.path),
                "name": one.entry.name.decode("utf-8", "replace"),
                "fingerprint": one.fingerprint.hex(),
                "depth": one.depth,
                "standing": one.standing,
                "granted_by": one.entry.fingerprint.hex(),
                "granted_by_name": key_names.get(one.entry.fingerprint),
                "grant": one.entry.hash.hex(),
                "public": one.entry.content.hex(),
                "own": one.fingerprint in mine,
            }
            for one in granted
            if every or one.standing == "valid"
        ]

    def do_grant(self, path: str, name: str, public: str, dry_run: bool = False) -> Json:
        """Let a key write at a path and below it; returns what that does, see `_told`."""
        raw = parse_public_key(public)
        key_name = name.encode("utf-8", "surrogateescape")
        return self._carry_out(lambda author: author.key_holder.grant(parse(path), key_name, raw), dry_run)

    def do_revoke(self, path: str, key: str, discard: bool = False, dry_run: bool = False) -> Json:
        """Take back the grants of a key (name or fingerprint) on one path; returns what that does, see `_told`.

        What the key has written there stays, unless `discard` is set.
        """
        at = parse(path)
        grant = self._find(at, key)
        key_name, fingerprint = grant.entry.name, grant.fingerprint
        told = self._carry_out(
            lambda author: author.key_holder.revoke(at, key_name, fingerprint, discard=discard), dry_run
        )
        return {"fingerprint": fingerprint.hex(), **told}

    def _carry_out(self, make: Callable[[Author], GrantPlan], dry_run: bool) -> dict[str, Json]:
        if dry_run:
            return self._told(self._replica.plan(make))
        plans: list[GrantPlan] = []

        def draft(author: Author) -> Draft:
            plans.append(make(author))
            return plans[-1].draft

        self._replica.commit(draft)
        return self._told(plans[-1])

    @staticmethod
    def _told(plan: GrantPlan) -> dict[str, Json]:
        """A plan as JSON: entries, acknowledged paths, paths that change, grants that fall and that are gained."""
        return {
            "entries": len(plan.draft.entries),
            "acks": [to_text(path) for path in plan.acks],
            "changed": [
                {
                    "path": to_text(change.path),
                    "before": _side(change.before),
                    "after": _side(change.after),
                }
                for change in plan.changed
            ],
            "fallen": [_grant(path, grant) for path, grant in plan.fallen],
            "gained": [_grant(path, grant) for path, grant in plan.gained],
        }

    def _find(self, path: Path, key: str) -> Grant:
        here = self._replica.grants(path)
        found = [
            grant
            for grant in here
            if key == grant.entry.name.decode("utf-8", "surrogateescape")
            or (len(key) >= 8 and grant.fingerprint.hex().startswith(key.lower()))
        ]
        if not found:
            raise UsageError(f"no key {key} is granted at {display(path)}: 'basefs keys' lists those that are")
        if len({grant.fingerprint for grant in found}) > 1:
            raise UsageError(f"more than one key is named {key} at {display(path)}: give the fingerprint")
        if self._replica.is_root_key(found[0].fingerprint):
            raise NotPermitted("the key that made the filesystem cannot be revoked")
        return found[0]


def _side(node: Node | None) -> dict[str, Json] | None:
    """What is at a path, on one side of a change."""
    if node is None:
        return None
    return {"kind": node.state.kind.value, "size": node.state.size, "entry": node.outcome.tips[0].hash.hex()}


def _grant(path: Path, grant: Grant) -> dict[str, Json]:
    return {
        "path": to_text(path),
        "name": grant.entry.name.decode("utf-8", "replace"),
        "fingerprint": grant.fingerprint.hex(),
    }
