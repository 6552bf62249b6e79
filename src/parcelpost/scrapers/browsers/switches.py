"""What Chromium is started with, beside what Playwright gives it."""

from __future__ import annotations

from parcelpost.scrapers.browsers.arguments import GUARDED

_NOT_NEEDED = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Pages of Chromium's own that nobody sees: two renderers for each of ours."""
_OF_PLAYWRIGHT = (
    *("AcceptCHFrame", "AimEnabled", "AutoDeElevate", "AvoidCorsURLLoaderRestartOnRedirect"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "DialMediaRouteProvider"),
    *("GlobalMediaControls", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "ImprovedCookieControls"),
    *("LazyFrameLoading", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "RenderDocument", "TcpPortRandomizationWin"),
    *("ThirdPartyStoragePartitioning", "Translate", "msEdgeUpdateLaunchServicesPreferredVersion"),
    "msForceBrowserSignIn",
)
"""Chromium takes only the last of several lists: what Playwright disables is said again."""

LEAN = ("--disable-features=" + ",".join((*_NOT_NEEDED, *_OF_PLAYWRIGHT)), "--disable-gpu")
SWITCHES = (*LEAN, *GUARDED)
