/**
 * `run_code` on AWS as far as it can be had here: the functions under the runtime client, and behind them the code box
 * in environments like Lambda's. What e2e/run-code.test.ts shows of bubblewrap's box is shown here of this one.
 */
import { createServer, type AddressInfo, type Server } from "node:net";
import { join } from "node:path";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { startLambdaServer } from "../support/aws/lambda-server.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import type { RunningHome } from "../support/homes.ts";
import { verifies } from "../support/verifies.ts";
import { openGroundOfAws, toHome } from "./home.ts";
import { createLambdaFunction, passOn, type LambdaFunction } from "./runtime-api.ts";
import { createSandboxes, sandboxMissing, type Sandboxes } from "./sandbox.ts";

const missing = [inject("runtimeClientMissing"), sandboxMissing() ?? ""].find((reason) => reason !== "");
if (missing !== undefined) console.log(`Skipped: run_code on AWS; ${missing}`);

const megabyte = 1_048_576;

interface HomeWithCodeBox extends RunningHome {
  readonly box: LambdaFunction;
  readonly sandboxes: Sandboxes;
}

async function startHome(): Promise<HomeWithCodeBox> {
  const ground = await openGroundOfAws();
  const sandboxes = createSandboxes();
  const box = createLambdaFunction({
    name: "code-box",
    taskRoot: join(import.meta.dirname, "../../functions/dist"),
    handler: "plugin-box.handler",
    timeoutMs: 60_000,
    memoryMb: 2_048,
    perTenant: true,
    // The bucket's server is on this machine's loopback.
    env: { TOOLYARD_BOX_RUNS: "code", TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8" },
    launch: sandboxes.launcher({}),
  });
  const { AWS_ACCESS_KEY_ID: accessKeyId = "", AWS_SECRET_ACCESS_KEY: secretAccessKey = "" } = ground.services.env;
  const lambda = await startLambdaServer("code-box", (invocation) => passOn(box, invocation), {
    accessKeyId,
    secretAccessKey,
  });
  const deployment = await ground.start({}, { CODE_BOX_FUNCTION: "code-box", AWS_ENDPOINT_URL_LAMBDA: lambda.url });
  const home = toHome(ground, {
    url: deployment.url,
    deployments: [deployment],
    async close() {
      await lambda.close();
      await box.close();
      sandboxes.close();
    },
  });
  return { ...home, box, sandboxes };
}

describe.skipIf(missing !== undefined)(`run_code on AWS ${verifies("NATIVE-2")}`, () => {
  let home: HomeWithCodeBox;
  let tenant: TestTenant;
  let session: string;

  beforeAll(async () => {
    home = await startHome();
    tenant = await home.newTenant({ native_tools: ["run_code"], workspace_bytes: 100 * megabyte });
  });
  afterAll(() => home?.close());
  beforeEach(() => {
    session = newId("session");
  });

  function send(code: string, more: Json = {}): Promise<Reply> {
    return tenant.client.send("post", "/v1/tools/invoke", {
      name: "run_code",
      arguments: { language: "python", code, ...more },
      session_id: session,
    });
  }

  /** The result as a program reads it. */
  async function run(code: string, more: Json = {}): Promise<Json> {
    const { json } = await send(code, more);
    expect(json.error, JSON.stringify(json.error)).toBeUndefined();
    return JSON.parse(json.content.split("\n")[0]);
  }

  /** As clients of functions do it where a file is large: by a link. */
  async function upload(path: string, body: Buffer): Promise<void> {
    const uploads = `/v1/sessions/${session}/uploads`;
    const { id, request } = await tenant.client.post(uploads, { path, bytes: body.byteLength });
    const { method, url, headers } = request;
    expect((await fetch(url, { method, headers, body: Uint8Array.from(body) })).status).toBe(200);
    await tenant.client.post(`${uploads}/${id}/complete`);
  }

  async function contentOf(path: string): Promise<Buffer> {
    const { bytes } = await tenant.client.send("get", `/v1/sessions/${session}/files/${path}`);
    return Buffer.from(bytes);
  }

  test("takes files that are larger than an invocation, and hands back what is larger than an answer", async () => {
    await upload("large.bin", Buffer.alloc(9 * megabyte, "a"));
    await upload("second.bin", Buffer.alloc(5 * megabyte, "b"));
    await upload("small.txt", Buffer.from("small"));
    const told = await run(`
import hashlib
sizes = [len(open(n, "rb").read()) for n in ("large.bin", "second.bin", "small.txt")]
print(sizes, hashlib.sha256(open("large.bin", "rb").read()).hexdigest()[:8])
open("back.bin", "wb").write(open("large.bin", "rb").read()[::-1] + b"z")
open("small.txt", "w").write("changed")
`);
    expect(told.stdout).toMatch(/^\[9437184, 5242880, 5\] [0-9a-f]{8}\n$/);
    expect(told.files).toEqual([
      { path: "back.bin", bytes: 9 * megabyte + 1, change: "created" },
      { path: "small.txt", bytes: 7, change: "changed" },
    ]);
    const back = await contentOf("back.bin");
    expect([back.byteLength, back.at(0), back.at(-1)]).toEqual([9 * megabyte + 1, 97, 122]);
  });

  test("tells no link to the code, nor to who reads the call", async () => {
    await upload("large.bin", Buffer.alloc(5 * megabyte, "a"));
    const reply = await send(`
import glob, os
seen = [str(dict(os.environ))]
for at in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + glob.glob("/tmp/**/*", recursive=True):
    try: seen.append(open(at, "rb").read().decode("latin1"))
    except OSError: pass
print(bytes.fromhex("582d416d7a2d").decode() in "".join(seen))
`);
    expect(JSON.parse(reply.json.content.split("\n")[0]).stdout).toBe("False\n");
    const { text } = await tenant.client.send("get", `/v1/calls/${reply.json.id}`);
    expect(text).not.toContain("X-Amz-");
    expect(home.output() + home.box.output()).not.toContain("X-Amz-Signature");
  });

  test("reaches no network: not the runtime's own address, no service of the machine, no name, no other family", async () => {
    const hits: string[] = [];
    const server: Server = createServer((socket) => {
      hits.push("hit");
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const told = await run(`
import socket
for place in [("127.0.0.1", ${port}), ("127.0.0.1", 9001), ("169.254.169.254", 80), ("1.1.1.1", 53)]:
    try: socket.create_connection(place, timeout=1); print("REACHED", place)
    except OSError as error: print("no", place[0], error.errno)
try: print("REACHED", socket.getaddrinfo("example.com", 80))
except OSError: print("no name")
for family in (2, 10, 16, 17, 38, 40):
    try: socket.socket(family, socket.SOCK_DGRAM); print("OPENED", family)
    except OSError: pass
print(socket.socketpair()[0].family == socket.AF_UNIX)
`);
    server.close();
    expect(told.stdout).toBe("no 127.0.0.1 97\nno 127.0.0.1 97\nno 169.254.169.254 97\nno 1.1.1.1 97\nno name\nTrue\n");
    expect(hits).toEqual([]);
    const javascript = await run(
      `fetch("http://127.0.0.1:${port}").then(() => console.log("REACHED"), () => console.log("no"))`,
      { language: "javascript" },
    );
    expect(javascript.stdout).toBe("no\n");
  });

  test.each([
    ["a fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "time_limit"],
    ["a flood of output", 'while True: print("x" * 1000)', "output_limit"],
    [
      "ignoring every signal",
      "import signal, time\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\ntime.sleep(60)",
      "time_limit",
    ],
  ])("%s is ended and said, and the environment goes on", async (_what, code, limit) => {
    const started = home.box.started;
    expect((await run(code, { timeout_ms: 2_500 })).ended_by).toBe(limit);
    expect((await run("print(1)")).stdout).toBe("1\n");
    expect(home.box.started).toBe(Math.max(started, 1));
  });

  test("memory and disk have an end that it can see, and nothing of it is there for the next", async () => {
    const memory = await run("a = []\nwhile True: a.append(bytearray(50 * 2**20))", { timeout_ms: 20_000 });
    expect(memory.stderr).toContain("MemoryError");
    const disk = await run(
      'n = 0\ntry:\n  while True:\n    n += 1\n    open(f"big{n}", "wb").write(b"x" * 8 * 2**20)\nexcept OSError as e: print(e.errno)',
      { timeout_ms: 20_000 },
    );
    expect(disk.stdout).toBe("28\n");
    const after = await run('import os\nprint(os.listdir("/tmp"), os.listdir("/dev/shm"))', { files: [] });
    expect(after.stdout).toMatch(/^\['toolyard-plugin-\w+'\] \[\]\n$/);
    for (const place of ["/", "/usr", "/var/task", "/etc"]) {
      expect((await run(`open("${place}/x", "w")`, { files: [] })).stderr).toMatch(/Read-only|Permission denied/);
    }
  });

  test("sees no other workspace of its tenant, and none of another's", async () => {
    await run('open("secret.txt", "w").write("of-the-first"); open("/tmp/left", "w").write("of-the-first")');
    const look = `
import os
found = []
for top, folders, names in os.walk("/"):
    if top == "/": folders[:] = ["tmp", "var", "run", "dev"]
    if top == "/var": folders[:] = ["tmp"]
    if top == "/dev": folders[:] = ["shm"]; continue
    for name in names:
        try: found.append(open(os.path.join(top, name), "rb").read().decode("latin1"))
        except OSError: pass
print("of-the-first" in "".join(found))
`;
    session = newId("session");
    expect((await run(look)).stdout).toBe("False\n");
    const [first] = [tenant];
    tenant = await home.newTenant({ native_tools: ["run_code"] });
    session = newId("session");
    try {
      expect((await run(look)).stdout).toBe("False\n");
    } finally {
      tenant = first;
    }
    expect(new Set(home.box.environments.map(({ tenantId }) => tenantId)).size).toBe(2);
  });

  test("links lead nowhere, neither those it leaves nor one in the place of a file or a directory", async () => {
    await upload("keep.txt", Buffer.from("as it was"));
    await upload("d/inner.txt", Buffer.from("inner"));
    const told = await run(`
import os, shutil
os.symlink("/var/task/plugin-box.mjs", "program")
os.remove("keep.txt"); os.symlink("/proc/self/environ", "keep.txt")
shutil.rmtree("d"); os.symlink("/etc", "d")
os.mkfifo("pipe")
try: os.link("/etc/passwd", "hard")
except OSError: pass
open("ok.txt", "w").write("ok")
`);
    expect(told.files).toEqual([{ path: "ok.txt", bytes: 2, change: "created" }]);
    expect(told.not_kept.map(({ path }: Json) => path)).toEqual(["d", "keep.txt", "pipe", "program"]);
    expect((await contentOf("keep.txt")).toString()).toBe("as it was");
    expect((await contentOf("d/inner.txt")).toString()).toBe("inner");
  });

  test("ending the runtime beside it costs its own answer only", async () => {
    const { json } = await send("import os\nos.kill(-1, 9)");
    expect(json.error).toMatchObject({
      code: "tool_failed",
      message: expect.stringContaining("nothing of what it did"),
    });
    expect((await run("print(1)")).stdout).toBe("1\n");
  });
});
