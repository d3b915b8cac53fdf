"""Pages of a folder in a headless Chromium, at some width, and what a script finds in them.

The folder is served here. A page beside them shows one in a frame, waits until it is ready, and sends back what was found.
"""

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--force-prefers-reduced-motion")
OUTSIDE = """<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:1200px"></iframe>
<script>
const frame = document.querySelector("iframe")
const told = [], send = found => fetch("/found", {{ method: "POST", body: JSON.stringify({{ found, told }}) }})
frame.contentWindow.addEventListener("error", event => told.push(event.message))
const wait = setInterval(() => {{
  const window = frame.contentWindow, document = window.document, find = id => document.getElementById(id)
  if (document.readyState !== "complete" || !({ready})) return
  clearInterval(wait)
  Promise.resolve({script}).then(send, fault => send(String(fault)))
}}, 100)
</script>"""


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/outside":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.outside.encode())

    def do_POST(self):
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.ready.set()

    def log_message(self, *_):
        pass


def browse(folder, page, script, profile, ready="true", width=1200, seconds=90):
    """The value of a script (an expression over `frame`, `window`, `document` and `find(id)`) in a page of the folder once it is
    `ready`, and the faults that the page met."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    server.outside = OUTSIDE.format(page=page, width=width, ready=ready, script=script)
    server.ready = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/outside"
    shown = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--window-size={max(width, 500)},1300", "--remote-debugging-port=0", address],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert server.ready.wait(seconds), f"{page} was not ready after {seconds} s"
    finally:
        shown.terminate()
        shown.wait(20)
        server.shutdown()
    return server.found["found"], server.found["told"]
