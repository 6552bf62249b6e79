"""Pages that a script writes: what a site sends is a shell, whose script asks for the rest."""

from __future__ import annotations

from msgspec.json import encode

from parcelpost.simulator.web import HTML, Request, Response, page

_MARK = "x-written-by-script"
_SUBMITS = b".submit()"
"""In a page that is a shell already: its script brings the record into a frame."""


def instead(request: Request, response: Response) -> Response:
    """The shell of a page, unless it is its own script that asks."""
    if response.status != 200 or response.content_type != HTML or _MARK in request.headers or _SUBMITS in response.body:
        return response
    form = request.body.decode("latin-1") if request.method == "POST" else None
    how = {
        "method": request.method,
        "headers": {_MARK: "1", **({"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {})},
        **({"body": form} if form is not None else {}),
    }
    asked = encode(how).decode().replace("<", r"\u003c")
    return page(f"""<!DOCTYPE html><html><head><title>Loading</title></head><body><div id="app">Loading ...</div>
<noscript>This page needs JavaScript.</noscript><script>
fetch(location.href, {asked}).then(answer => answer.text()).then(text => {{
  document.open(); document.write(text); document.close(); }});
</script></body></html>""")
