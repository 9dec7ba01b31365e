"""Puts policies and tokens into a Consul with ACLs: `tokens.py --management FILE worker.hcl=TOKEN_FILE ...`.

Each token file holds the secret that the token will have (a UUID). Running it again changes nothing, or brings the
policies up to date. Python's standard library is all that it needs.
"""

import argparse
import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_SECONDS = 10


class Acl:
    """Consul's ACL API."""

    def __init__(self, url: str, management: str, ca_file: str | None) -> None:
        self._url = url.rstrip("/")
        self._management = management
        self._trust = (
            ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
        )

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """One question; urllib's HTTPError if it is refused."""
        request = urllib.request.Request(  # noqa: S310 - the address is the operator's
            f"{self._url}/v1/acl/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-Consul-Token": token or self._management},
        )
        with urllib.request.urlopen(request, timeout=_SECONDS, context=self._trust) as answer:  # noqa: S310
            return json.load(answer)

    def put_policy(self, name: str, rules: str) -> str:
        """Make or renew a policy; returns its id."""
        known = {one["Name"]: one["ID"] for one in self.ask("GET", "policies") or []}
        body = {"Name": name, "Rules": rules}
        path = f"policy/{known[name]}" if name in known else "policy"
        return str(self.ask("PUT", path, body)["ID"])

    def put_token(self, secret: str, policy: str, description: str) -> None:
        """Make or renew the token with this secret."""
        body = {"Description": description, "Policies": [{"ID": policy}]}
        try:
            known = self.ask("GET", "token/self", token=secret)
        except urllib.error.HTTPError as error:
            if error.code != 403:  # ACL not found
                raise
            self.ask("PUT", "token", {**body, "SecretID": secret})
        else:
            accessor = known["AccessorID"]
            self.ask("PUT", f"token/{accessor}", {**body, "AccessorID": accessor})


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8500", help="an agent's URL")
    parser.add_argument("--ca", help="file with the CA of https")
    parser.add_argument("--management", required=True, help="file with a token that may write ACLs")
    parser.add_argument("pairs", nargs="+", metavar="POLICY.hcl=TOKEN_FILE")
    options = parser.parse_args()
    acl = Acl(options.address, Path(options.management).read_text("ascii").strip(), options.ca)
    for pair in options.pairs:
        policy, _, token = pair.partition("=")
        name = f"inferplane-{Path(policy).stem}"
        try:
            identity = acl.put_policy(name, Path(policy).read_text())
            acl.put_token(Path(token).read_text("ascii").strip(), identity, name)
        except urllib.error.HTTPError as error:
            sys.stderr.write(f"{name}: {error}: {error.read().decode(errors='replace')}\n")
            return 1
        except urllib.error.URLError as error:
            sys.stderr.write(f"{options.address}: {error.reason}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
