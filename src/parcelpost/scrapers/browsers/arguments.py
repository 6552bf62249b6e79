"""What Chromium is started with so that nothing of it goes by our guard, whatever a page asks it to do."""

from __future__ import annotations

GUARDED: tuple[str, ...] = (
    # A page's context has our proxy; what belongs to no page (updates, experiments, reports) goes to nobody.
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    # Names are resolved by our proxy only: not for a prefetch, and not to connect ahead of time.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--dns-prefetch-disable",
    # What would go by UDP does not go.
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-pings",
    "--no-first-run",
)
"""To be given to every Chromium that is lent."""
