"""The router in front of a plan's servers: the engine's own, or nginx where that alone has the plan's policy.

nginx assigns in turn, at random in proportion to weights (`random`), or to the server with the fewest unfinished
requests (`least_conn`), as its module ngx_http_upstream_module of 1.29 documents; one worker process keeps one count.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines.operations import Address, Operations, RouterServer
from gnomon.spec import Plan

NGINX_IMAGE = "nginx:1.29"
NGINX_PORT = 8080
NGINX_FILE = "nginx.conf"
METHODS = {"random": "random;", "weighted": "random;", "round-robin": "", "least-requests": "least_conn;"}
PARTS = 100
"""nginx takes integers: so many for the smallest, which keeps shares within half a percent."""
LONGEST = "1h"
"""Until a server that sends nothing is given up."""


def router_of(plan: Plan, engine: Operations, addresses: Sequence[Address], *, reached: bool) -> RouterServer:
    """The engine's own router where it has the plan's policy, or sends KV caches; else nginx where that has it."""
    own = engine.router(plan, addresses, reached)
    if own is not None and (plan.disaggregated or plan.router in engine.router_policies(plan)):
        return own
    if plan.router in METHODS:
        return _nginx(plan, addresses, reached)
    if own is not None:
        return own
    why = f"the router {plan.router}: nginx does not have it, and assigns to the server with the fewest requests"
    return _nginx(plan, addresses, reached, METHODS["least-requests"], (why,))


def _nginx(
    plan: Plan, addresses: Sequence[Address], reached: bool, method: str | None = None, left_out: tuple[str, ...] = ()
) -> RouterServer:
    lines = [METHODS[plan.router]] if method is None else [method]
    weights = _weights(addresses) if plan.router == "weighted" else [1] * len(addresses)
    lines += [
        f"server {each.place} max_fails=0{f' weight={weight}' if weight > 1 else ''};"
        for each, weight in zip(addresses, weights, strict=True)
    ]
    listen = f"{'0.0.0.0' if reached else '127.0.0.1'}:{NGINX_PORT}"
    text = [
        "worker_processes 1;",
        "pid nginx.pid;",
        "error_log stderr;",
        "events { worker_connections 16384; }",
        "http {",
        "  access_log off;",
        "  client_max_body_size 0;",
        "  upstream servers {",
        *(f"    {line}" for line in lines if line),
        "  }",
        "  server {",
        f"    listen {listen};",
        "    location / {",
        "      proxy_pass http://servers;",
        "      proxy_http_version 1.1;",
        "      proxy_buffering off;",
        f"      proxy_read_timeout {LONGEST};",
        f"      proxy_send_timeout {LONGEST};",
        "      proxy_next_upstream off;",
        "    }",
        "  }",
        "}",
    ]
    return RouterServer(
        words=("nginx", "-p", ".", "-c", NGINX_FILE, "-e", "stderr", "-g", "daemon off;"),
        port=NGINX_PORT,
        image=NGINX_IMAGE,
        health="/health",
        files={NGINX_FILE: "\n".join(text) + "\n"},
        left_out=left_out,
    )


def _weights(addresses: Sequence[Address]) -> list[int]:
    least = min(each.weight for each in addresses)
    return [max(1, round(PARTS * each.weight / least)) for each in addresses]
