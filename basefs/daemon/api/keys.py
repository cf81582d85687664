"""What commands can ask about keys, and have done with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from basefs.daemon.api.messages import (
    LEAST_DIGITS,
    ChangedGrant,
    GetRecovery,
    GrantedKey,
    GrantKey,
    GrantOutcome,
    Handlers,
    InviteKey,
    ListKeys,
    OtherKey,
    PublicKey,
    RecoverRootKey,
    RecoveryState,
    RenewGossipKey,
    RevokeKey,
    RevokeOutcome,
)
from basefs.daemon.api.versions import path_changes
from basefs.daemon.keyfiles import signing_key
from basefs.daemon.share import Share, assemble
from basefs.errors import Exists, NotFound, NotPermitted, UsageError, suggestion
from basefs.log.hashes import Fingerprint
from basefs.log.keys import fingerprint_of, parse_public_key
from basefs.path import Path, display, parse, to_text
from basefs.replica.replica import Replica
from basefs.view.author import Author
from basefs.view.draft import Draft
from basefs.view.invitations import READERS, is_invitation
from basefs.view.keyholder import GrantPlan
from basefs.view.past import GrantRecord
from basefs.view.permissions import Grant


class KeyServices:
    """Grants and revokes, planned or done."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def handlers(self) -> Handlers:
        """What answers each request."""
        return {
            ListKeys: self.keys,
            GrantKey: self.grant,
            RevokeKey: self.revoke,
            RenewGossipKey: self.renew_gossip_key,
            InviteKey: self.invite,
            GetRecovery: self.recovery,
            RecoverRootKey: self.recover,
        }

    def keys(self, request: ListKeys) -> list[GrantedKey]:
        """See `ListKeys`."""
        granted = self._replica.plan(lambda author: author.past.grants())
        if request.path is not None:
            at = parse(request.path)
            self._replica.attributes(at)
            granted = [one for one in granted if at[: len(one.path)] == one.path]
        mine = {key.fingerprint for key in self._replica.keys}
        key_names = self._replica.key_names()
        return [
            _row(one, key_names, own=one.fingerprint in mine)
            for one in granted
            if request.every or one.standing in ("valid", "reads")
        ]

    def grant(self, request: GrantKey) -> GrantOutcome:
        """See `GrantKey`."""
        name = request.name.encode("utf-8", "surrogateescape")
        if is_invitation(name):
            raise UsageError(f"{request.name!r} is a name for invitations: make one with 'basefs invite'")
        public = parse_public_key(request.public)
        path = parse(request.path)

        def make(author: Author) -> GrantPlan:
            if not request.force:
                _require_one_name(author, name, fingerprint_of(public))
            return author.key_holder.grant(path, name, public)

        return self._carry_out(make, request.dry_run, request.signer)

    def invite(self, request: InviteKey) -> str:
        """See `InviteKey`."""
        public, name = parse_public_key(request.public), request.name.encode("utf-8", "surrogateescape")
        path = READERS if request.path is None else parse(request.path)
        is_made = request.path is not None or READERS[0] in self._replica.names_in(())

        def make(author: Author) -> Iterator[Draft]:
            if not is_made:
                yield author.make_directory(READERS)
            yield author.grant(path, name, public)

        self._replica.commit(make)
        return to_text(path)

    def revoke(self, request: RevokeKey) -> RevokeOutcome:
        """See `RevokeKey`."""
        path = parse(request.path)
        grant = self._find(request.key, path)
        if self._replica.is_root_key(grant.fingerprint):
            raise NotPermitted("the root key cannot be revoked")
        name, fingerprint = grant.entry.name, grant.fingerprint
        plan = self._carry_out(
            lambda author: author.key_holder.revoke(path, name, fingerprint, discard=request.discard),
            request.dry_run,
            request.signer,
        )
        return RevokeOutcome(fingerprint.hex(), plan)

    def renew_gossip_key(self, request: RenewGossipKey) -> None:
        """See `RenewGossipKey`."""
        if self._replica.is_open:
            raise UsageError(
                "anybody may read this filesystem, so its gossip has no key of its own: 'basefs mount "
                "--encrypt-key-file' on all nodes gives it one"
            )
        key = None if request.signer is None else signing_key(request.signer)
        self._replica.commit(lambda author: author.key_holder.renew_gossip_key(), key=key)

    def recovery(self, request: GetRecovery) -> RecoveryState:
        """See `GetRecovery`."""
        found = self._replica.plan(lambda author: author.key_holder.recoveries())
        fingerprint = fingerprint_of(found.root_key)
        return RecoveryState(
            identity=found.root.hash.hex(),
            root_key=_public(found.root_key),
            root_name=self._replica.key_names().get(fingerprint, fingerprint.hex()[:12]),
            threshold=0 if found.keys is None else found.keys.threshold,
            keys=[] if found.keys is None else [_public(public) for public in found.keys.publics],
            last=found.last,
        )

    def recover(self, request: RecoverRootKey) -> GrantOutcome:
        """See `RecoverRootKey`."""
        key = signing_key(request.signer)
        shares = [Share.parse(line) for line in request.shares]
        dropped = [self._find(text).fingerprint for text in request.drop]

        def make(author: Author) -> GrantPlan:
            recovery = assemble(author.key_holder.recoveries(), key.public, shares)
            return author.key_holder.recover(b"root", recovery, dropped, discard=request.discard)

        return self._carry_out(make, request.dry_run, request.signer)

    def _carry_out(
        self,
        make: Callable[[Author], GrantPlan],
        dry_run: bool,
        signer: OtherKey | None,
    ) -> GrantOutcome:
        """Plan, and unless it is a rehearsal do, what `make` drafts."""
        key = None if signer is None else signing_key(signer)
        if dry_run:
            return _describe(self._replica.plan(make, key))
        plans: list[GrantPlan] = []

        def draft(author: Author) -> Draft:
            plans.append(make(author))
            return plans[-1].draft

        self._replica.commit(draft, key=key)
        return _describe(plans[-1])

    def _find(self, key: str, path: Path | None = None) -> GrantRecord:
        """A grant of the key with a name, or with the beginning of a fingerprint, at a path or (`None`) anywhere."""
        granted = self._replica.plan(lambda author: author.past.grants())
        here = [one for one in granted if path in (None, one.path) and one.standing in ("valid", "reads")]
        found = [one for one in here if _is_called(one, key)]
        at = "" if path is None else f" at {display(path)}"
        if not found:
            near = suggestion(key, (one.entry.name.decode("utf-8", "replace") for one in here))
            raise NotFound(f"no key {key} is granted{at}{near}: 'basefs keys {self._replica.name}' lists the keys")
        if len({one.fingerprint for one in found}) > 1:
            raise UsageError(f"more than one key is named {key}{at}: give the fingerprint")
        return found[0]


def _require_one_name(author: Author, name: bytes, fingerprint: Fingerprint) -> None:
    """Raise `Exists` where a grant would give a key a second name, or two keys the same one."""
    in_force = [one for one in author.past.grants() if one.standing == "valid"]
    if any(one.entry.name == name and one.fingerprint == fingerprint for one in in_force):
        return
    for one in in_force:
        there, at = one.entry.name.decode("utf-8", "backslashreplace"), display(one.path)
        if one.fingerprint == fingerprint:
            raise Exists(f"that key is named {there} at {at}: grant it under that name, or add -f for a second one")
        if one.entry.name == name:
            other = one.fingerprint.hex()[:LEAST_DIGITS]
            raise Exists(f"{there} is the name of the key {other} at {at}: choose another name, or add -f to share it")


def _row(one: GrantRecord, key_names: Mapping[Fingerprint, str], *, own: bool) -> GrantedKey:
    return GrantedKey(
        path=to_text(one.path),
        name=one.entry.name.decode("utf-8", "replace"),
        fingerprint=one.fingerprint.hex(),
        depth=one.depth,
        standing=one.standing,
        granted_by=one.entry.fingerprint.hex(),
        granted_by_name=key_names.get(one.entry.fingerprint),
        grant=one.entry.hash.hex(),
        public=one.entry.content.hex(),
        own=own,
    )


def _describe(plan: GrantPlan) -> GrantOutcome:
    return GrantOutcome(
        entries=len(plan.draft.entries),
        acks=[to_text(path) for path in plan.acks],
        changed=path_changes(plan.changed),
        fallen=[_changed(path, grant) for path, grant in plan.fallen],
        gained=[_changed(path, grant) for path, grant in plan.gained],
    )


def _changed(path: Path, grant: Grant) -> ChangedGrant:
    return ChangedGrant(to_text(path), grant.entry.name.decode("utf-8", "replace"), grant.fingerprint.hex())


def _public(public: bytes) -> PublicKey:
    return PublicKey(public.hex(), fingerprint_of(public).hex())


def _is_called(one: GrantRecord, key: str) -> bool:
    """Whether a grant is of the key with this name, or of one whose fingerprint begins so."""
    if key == one.entry.name.decode("utf-8", "surrogateescape"):
        return True
    return len(key) >= LEAST_DIGITS and one.fingerprint.hex().startswith(key.lower())
