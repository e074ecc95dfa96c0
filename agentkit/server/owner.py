"""`Owner`: the tenant and the user for whom a request acts."""

from __future__ import annotations

from typing import NamedTuple

from agentkit_memory import Scope


class Owner(NamedTuple):
    """Owner of a session or a run: a tenant, or a user of the tenant."""

    tenant: str
    user: str = ""

    def scope(self, name: str) -> Scope:
        """Return the scope of the messages of a session or a run; `name`: its name.

        Without a user, the messages of each session are in a separate scope: requests without a user can come from
        different persons, who must not read the messages of each other. They all read the documents of the tenant.
        """
        if self.user:
            return Scope(self.tenant, user=self.user)
        return Scope(self.tenant, session=name)
