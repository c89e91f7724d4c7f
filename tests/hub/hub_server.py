"""A Hub on loopback: the few calls that sharing a run makes, and a list of what was asked for."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"


@dataclass
class Repo:
    """Every commit's files; `main` is the last one."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(f"{len(self.commits)}{sorted(files)}".encode()).hexdigest()
        self.commits[sha] = files
        return sha

    def find(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        sha = list(self.commits)[-1] if revision == "main" else revision
        return (sha, self.commits[sha]) if sha in self.commits else None


@dataclass
class Hub:
    """What the server holds, and what it was asked."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # METHOD path

    def files(self, name: str) -> dict[str, bytes]:
        found = self.repos[name].find("main")
        assert found is not None
        return found[1]

    def downloads(self) -> list[str]:
        """Names of the files whose content was sent, since this was asked last."""
        got = [found[1] for line in self.asked if (found := re.match(r"GET /[^/]+/[^/]+/resolve/\w+/(.+)", line))]
        self.asked.clear()
        return sorted(got)


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A Hub on a free port, until the block ends."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            answer(self, hub)

        do_HEAD = do_POST = do_PUT = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def answer(request: BaseHTTPRequestHandler, hub: Hub) -> None:
    """Find the call that is meant and send what it answers."""
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    path = unquote(urlsplit(request.path).path)
    hub.asked.append(f"{request.command} {path}")
    known = request.headers.get("Authorization") == f"Bearer {TOKEN}"
    for method, pattern, call in CALLS:
        found = re.fullmatch(pattern, path)
        if found and request.command in method.split():
            if found.groupdict().get("name") is not None and not visible(hub, found["name"], known):
                return send(request, 404 if known else 401, {"error": "Repository not found"}, RepoNotFound=True)
            return call(request, hub, found, body, known)
    return send(request, 404, {"error": f"no such call: {path}"})


def visible(hub: Hub, name: str, known: bool) -> bool:
    return name in hub.repos and (known or not hub.repos[name].private)


def send(request: BaseHTTPRequestHandler, status: int, content: object, headers: dict | None = None, **codes) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    request.send_response(status)
    for code in codes:
        request.send_header("X-Error-Code", code)
    for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
        request.send_header(key, value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(data)


def create(request, hub, found, body, known) -> None:
    if not known:
        return send(request, 401, {"error": "Invalid username or password."})
    asked = json.loads(body)
    name = f"{asked['organization']}/{asked['name']}"
    if asked["organization"] == "somebody-else":
        return send(request, 403, {"error": "You don't have the rights to create a model under that namespace"})
    status = 409 if name in hub.repos else 200
    if status == 200:
        private = asked.get("visibility") == "private" or asked.get("private", False)
        hub.repos[name] = Repo(private)
        hub.repos[name].commit({".gitattributes": b""})
    return send(request, status, {"url": f"{hub.url}/{name}", "name": name})


def info(request, hub, found, body, known) -> None:
    repo = hub.repos[found["name"]]
    state = repo.find(found["revision"] or "main")
    if state is None:
        return send(request, 404, {"error": "Invalid rev id"}, RevisionNotFound=True)
    siblings = [{"rfilename": path} for path in state[1]]
    facts = {"id": found["name"], "sha": state[0], "private": repo.private, "siblings": siblings}
    return send(request, 200, facts | {"tags": [], "downloads": 0, "likes": 0})


def tree(request, hub, found, body, known) -> None:
    _, files = hub.repos[found["name"]].find(found["revision"])
    return send(
        request,
        200,
        [{"type": "file", "path": path, "size": len(data), "oid": git_oid(data)} for path, data in files.items()],
    )


def preupload(request, hub, found, body, known) -> None:
    """Weights go to the large file storage, as on the Hub."""
    files = [
        {
            "path": file["path"],
            "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
            "shouldIgnore": False,
        }
        for file in json.loads(body)["files"]
    ]
    return send(request, 200, {"files": files})


def batch(request, hub, found, body, known) -> None:
    objects = []
    for each in json.loads(body)["objects"]:
        upload = {"upload": {"href": f"{hub.url}/lfs/{each['oid']}"}}
        objects.append(each if each["oid"] in hub.lfs else each | {"actions": upload})
    return send(request, 200, {"transfer": "basic", "objects": objects})


def store(request, hub, found, body, known) -> None:
    assert hashlib.sha256(body).hexdigest() == found["oid"]
    hub.lfs[found["oid"]] = body
    return send(request, 200, b"")


def commit(request, hub, found, body, known) -> None:
    files = dict(hub.files(found["name"]))
    for line in map(json.loads, body.splitlines()):
        value = line["value"]
        if line["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif line["key"] == "lfsFile":
            files[value["path"]] = hub.lfs[value["oid"]]
        elif line["key"] == "deletedFile":
            del files[value["path"]]
    sha = hub.repos[found["name"]].commit(files)
    return send(request, 200, {"commitOid": sha, "commitUrl": f"{hub.url}/{found['name']}/commit/{sha}"})


def resolve(request, hub, found, body, known) -> None:
    sha, files = hub.repos[found["name"]].find(found["revision"])
    if found["file"] not in files:
        return send(request, 404, {"error": "Entry not found"}, EntryNotFound=True)
    data = files[found["file"]]
    return send(request, 200, data, {"ETag": f'"{git_oid(data)}"', "X-Repo-Commit": sha})


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


NAME = r"(?P<name>[^/]+/[^/]+)"
CALLS = [
    ("POST", r"/api/repos/create", create),
    ("POST", r"/api/validate-yaml", lambda request, *_: send(request, 200, {})),
    ("GET", rf"/api/models/{NAME}(/revision/(?P<revision>.+))?", info),
    ("GET", rf"/api/models/{NAME}/tree/(?P<revision>[^/]+)/?", tree),
    ("POST", rf"/api/models/{NAME}/preupload/main", preupload),
    ("POST", rf"/api/models/{NAME}/commit/main", commit),
    ("POST", r"/(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch", batch),
    ("PUT", r"/lfs/(?P<oid>\w+)", store),
    ("GET HEAD", rf"/{NAME}/resolve/(?P<revision>\w+)/(?P<file>.+)", resolve),
]
