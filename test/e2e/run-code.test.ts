/**
 * Programs of models in the code box: what they print, write and draw comes back, and whatever else they try stays
 * inside. Where bubblewrap is missing only the refusal can be seen, and the rest is skipped by name.
 */
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { newId } from "@toolyard/core/ids";
import { findBubblewrap } from "@toolyard/platform/local/plugin-wall";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

// The `node` of programs is the one that runs this suite.
const path = `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;
const { program: bubblewrap, missing } = await findBubblewrap(path);
if (missing !== undefined) console.log(`Skipped: programs in the code box; ${missing}.`);

let gateway: Gateway;
let llm: LlmStub;
let tenant: TestTenant;
let session: string;

beforeAll(async () => {
  [gateway, llm] = await Promise.all([
    startGateway({ env: { PATH: path, TOOLYARD_SECRET_OF_THE_HOST: "s3cret-of-the-host" } }),
    startLlmStub(),
  ]);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close()]);
});

beforeEach(async () => {
  llm.requests.length = 0;
  tenant = await gateway.newTenant({ native_tools: ["run_code", "read_file", "read_result"] });
  await tenant.addProvider(llm.url);
  session = newId("session");
});

interface Program {
  readonly language?: "python" | "javascript";
  readonly files?: readonly string[];
  readonly timeout_ms?: number;
}

function send(code: string, more: Program = {}, inSession: string | undefined = session): Promise<Reply> {
  return tenant.client.send("post", "/v1/tools/invoke", {
    name: "run_code",
    arguments: { language: "python", code, ...more },
    ...(inSession === undefined ? {} : { session_id: inSession }),
  });
}

/** The result as a program reads it. */
async function run(code: string, more: Program = {}): Promise<Json> {
  const { json } = await send(code, more);
  expect(json.error, JSON.stringify(json.error)).toBeUndefined();
  return JSON.parse(json.content.split("\n")[0]);
}

function put(name: string, body: string | Uint8Array): Promise<Reply> {
  const raw = Uint8Array.from(Buffer.from(body));
  return tenant.client.send("put", `/v1/sessions/${session}/files/${name}`, undefined, { raw });
}

async function bytesOf(name: string): Promise<Buffer> {
  const { bytes } = await tenant.client.send("get", `/v1/sessions/${session}/files/${name}`);
  return Buffer.from(bytes);
}

const filesOf = async (): Promise<string[]> =>
  (await tenant.client.get(`/v1/sessions/${session}/files?limit=100`)).data.map(({ path: name }: Json) => name);

/** Eight by eight, red, by the standard library alone. */
const drawing = `
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\\0" + b"\\xff\\0\\0" * 8 for _ in range(8))
open("chart.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
print("drawn")
`;

describe.skipIf(bubblewrap === undefined)(`a program in the code box ${verifies("NATIVE-2", "NATIVE-1")}`, () => {
  test("reads the session's files, and what it prints, writes and draws comes back to a model", async () => {
    await put("data/in.csv", "a,b\n1,2\n");
    const code = `print(open("data/in.csv").read())\nopen("data/out.txt", "w").write("two")${drawing}`;
    llm.script(calls({ name: "run_code", arguments: { language: "python", code } }), text("done"));
    const answer = await tenant.client.post("/v1/chat/completions", {
      messages: [{ role: "user", content: "draw" }],
      session_id: session,
    });
    expect(answer.choices[0].message.content).toBe("done");
    const messages = llm.requests.at(-1)?.["messages"] as Json[];
    const result = JSON.parse(messages.find(({ role }) => role === "tool")?.content.split("\n")[0]);
    expect(result).toMatchObject({
      exit_code: 0,
      stdout: "a,b\n1,2\n\ndrawn\n",
      files: [
        { path: "chart.png", change: "created" },
        { path: "data/out.txt", bytes: 3, change: "created" },
      ],
      images: [{ path: "chart.png", media_type: "image/png" }],
    });
    expect((await bytesOf("chart.png")).subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
    expect((await bytesOf("data/out.txt")).toString()).toBe("two");
    expect(await filesOf()).toEqual(["chart.png", "data/in.csv", "data/out.txt"]);
  });

  test("gives its picture as a picture to whoever reads the whole result", async () => {
    const { json } = await send(drawing);
    const whole = await tenant.client.get(`/v1/calls/${json.id}/result`);
    expect(whole.content).toEqual([
      { type: "text", text: expect.stringContaining('"exit_code":0') },
      { type: "image", mimeType: "image/png", data: (await bytesOf("chart.png")).toString("base64") },
    ]);
  });

  test("may be JavaScript, and its changes replace files whole", async () => {
    await put("n.json", '{"n":20}');
    const code = `import { readFileSync, writeFileSync } from "node:fs";
      const { n } = JSON.parse(readFileSync("n.json", "utf8"));
      writeFileSync("n.json", JSON.stringify({ n: n + 1 }));
      console.log(await Promise.resolve(n));`;
    expect(await run(code, { language: "javascript" })).toMatchObject({
      exit_code: 0,
      stdout: "20\n",
      files: [{ path: "n.json", bytes: 8, change: "changed" }],
    });
    expect((await bytesOf("n.json")).toString()).toBe('{"n":21}');
  });

  test("says why it failed, with what it had written until then", async () => {
    const told = await run('open("half.txt", "w").write("half")\nraise ValueError("no")');
    expect(told).toMatchObject({ exit_code: 1, files: [{ path: "half.txt" }] });
    expect(told.stderr).toMatch(/line 2.*ValueError: no/s);
  });

  test("sees the named files only, and refuses what is not there", async () => {
    await put("a.txt", "a");
    await put("d/b.txt", "b");
    const list = 'import os\nprint(sorted(os.path.join(d, f) for d, _, fs in os.walk(".") for f in fs))';
    expect((await run(list, { files: ["d/"] })).stdout).toBe("['./d/b.txt']\n");
    expect((await run(list)).stdout).toBe("['./a.txt', './d/b.txt']\n");
    expect((await send(list, { files: ["c.txt"] })).json.error).toMatchObject({
      code: "file_not_found",
      param: "files",
    });
  });

  test("runs without a session, and then nothing is kept", async () => {
    const { json } = await tenant.client.send("post", "/v1/tools/invoke", {
      name: "run_code",
      arguments: { language: "python", code: 'open("x", "w").write("x")\nprint(6 * 7)' },
    });
    expect(JSON.parse(json.content)).toMatchObject({
      stdout: "42\n",
      files: [],
      not_kept: [{ path: "x", reason: expect.stringContaining("session_id") }],
    });
  });

  test("has its long output cut for a model and kept whole behind the handle", async () => {
    const { json } = await send('import sys\nprint("x" * 200_000)\nprint("last", file=sys.stderr)');
    expect(json.content.length).toBeLessThan(33_500);
    expect(json.content).toContain("last");
    const whole = await tenant.client.get(`/v1/calls/${json.id}/result`);
    expect(whole.stdout.length).toBe(200_001);
  });

  test("writes no more than the workspace may hold, and says so", async () => {
    const small = await gateway.newTenant({ native_tools: ["run_code"], workspace_bytes: 2_000 });
    tenant = small;
    const told = await run('open("a", "wb").write(b"a" * 1500)\nopen("b", "wb").write(b"b" * 1500)');
    expect(told).toMatchObject({ files: [{ path: "a" }], not_kept: [{ path: "b" }] });
    expect(told.not_kept[0].reason).toContain("workspace_bytes");
    expect(await filesOf()).toEqual(["a"]);
  });

  test("may take the time it is allowed, and no argument takes more", async () => {
    const { json } = await send("print(1)", { timeout_ms: 800_000 });
    expect(json.error).toMatchObject({ code: "invalid_arguments", param: "timeout_ms" });
    expect(json.error.message).toContain("tool_timeout_ms");
  });
});

describe.skipIf(bubblewrap === undefined)(`hostile code stays in the box ${verifies("NATIVE-2")}`, () => {
  /** The gateway is well, and so are the files. */
  async function expectUnharmed(): Promise<void> {
    expect((await tenant.client.send("get", "/health/live")).status).toBe(200);
    expect((await bytesOf("keep.txt")).toString()).toBe("as it was");
  }

  beforeEach(async () => {
    await put("keep.txt", "as it was");
  });

  test("it reaches no network: not the host's loopback, no name, no metadata, no other machine", async () => {
    const hits: string[] = [];
    const server = createServer((socket) => {
      hits.push("hit");
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const told = await run(`
import socket
for place in [("127.0.0.1", ${port}), ("169.254.169.254", 80), ("1.1.1.1", 53), ("10.0.0.1", 80)]:
    try:
        socket.create_connection(place, timeout=1); print("REACHED", place)
    except OSError: print("no", place[0])
try: print("REACHED", socket.getaddrinfo("example.com", 80))
except OSError: print("no name")
for family in (40, 38, 16, 17):
    try: socket.socket(family, socket.SOCK_DGRAM); print("OPENED", family)
    except OSError: pass
`);
    server.close();
    expect(told.stdout).toBe("no 127.0.0.1\nno 169.254.169.254\nno 1.1.1.1\nno 10.0.0.1\nno name\n");
    expect(hits).toEqual([]);
    await expectUnharmed();
  });

  test("it sees no secret, no file and no process of the host, nor another session's files", async () => {
    const elsewhere = newId("session");
    await tenant.client.send("put", `/v1/sessions/${elsewhere}/files/other.txt`, undefined, {
      raw: Uint8Array.from(Buffer.from("of-another-session")),
    });
    const told = await run(`
import os, glob
seen = [str(dict(os.environ))]
for at in ["/proc/1/environ", "/proc/1/cmdline", "/etc/passwd", "/etc/shadow", "/root/.bashrc", "${gateway.dataDir}"]:
    try: seen.append(open(at).read())
    except OSError as error: seen.append(type(error).__name__)
for p in glob.glob("/proc/[0-9]*/environ"):
    try: seen.append(open(p).read())
    except OSError: pass
for top, folders, files in os.walk("/", followlinks=False):
    if top.startswith(("/proc", "/usr", "/lib", "/bin", "/sbin", "/dev")) or "pyenv" in top or "node_modules" in top: folders[:] = []; continue
    for f in files:
        try: seen.append(open(os.path.join(top, f), "rb").read().decode("latin1"))
        except OSError: pass
text = "\\n".join(seen)
print("of-another-session" in text, "s3cret-of-the-host" in text, "TOOLYARD" in text, "root:x:0" in text)
print(len([p for p in os.listdir("/proc") if p.isdigit()]) < 6, os.path.exists("${gateway.dataDir}"))
`);
    expect(told.stdout).toBe("False False False False\nTrue False\n");
  });

  test("links lead nowhere: neither those it leaves, nor one in the place of a file", async () => {
    const told = await run(`
import os
os.symlink("/etc/passwd", "passwd")
os.remove("keep.txt"); os.symlink("/proc/self/environ", "keep.txt")
os.makedirs("d"); os.symlink("/", "d/root")
os.mkfifo("pipe")
open("ok.txt", "w").write("ok")
`);
    expect(told.files).toEqual([{ path: "ok.txt", bytes: 2, change: "created" }]);
    expect(told.not_kept.map((file: Json) => [file.path, file.reason])).toEqual([
      ["d/root", "it is a link"],
      ["keep.txt", "it is a link"],
      ["passwd", "it is a link"],
      ["pipe", "it is no regular file"],
    ]);
    await expectUnharmed();
  });

  test("names that are none of a workspace's are not kept", async () => {
    const told = await run(
      `open(b"bad\\xff", "w").write("x")\nopen("line\\nbreak", "w").write("x")\nopen("a\\\\b", "w").write("x")`,
    );
    expect(told.files).toEqual([]);
    expect(told.not_kept).toHaveLength(3);
    expect(await filesOf()).toEqual(["keep.txt"]);
  });

  test.each([
    [
      "a fork bomb",
      "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
      ["time_limit", "process_limit"],
    ],
    [
      "ignoring every signal",
      "import signal, time\nfor s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\ntime.sleep(60)",
      ["time_limit"],
    ],
    ["a flood of output", 'while True: print("x" * 1000)', ["output_limit"]],
    [
      "memory of many processes",
      "import os, time\nfor _ in range(12):\n  if os.fork() == 0:\n    b = bytearray(b'x') * (150 * 2**20)\n    time.sleep(20)\ntime.sleep(20)",
      ["memory_limit"],
    ],
  ])("%s is ended and said", async (_what, code, limits) => {
    const told = await run(code, { timeout_ms: 2_500 });
    expect(limits).toContain(told.ended_by);
    expect(told.message).toMatch(/ended/);
    await expectUnharmed();
  });

  test("memory of one process, the disk and small files have an end that it can see", async () => {
    const memory = await run("a = []\nwhile True: a.append(bytearray(50 * 2**20))", { timeout_ms: 10_000 });
    expect(memory.stderr).toContain("MemoryError");
    const disk = await run(
      'f = open("big", "wb")\ntry:\n  while True: f.write(b"x" * 2**20)\nexcept OSError as e: print(e.errno)',
      { timeout_ms: 10_000 },
    );
    expect(disk).toMatchObject({ stdout: "28\n", not_kept: [{ path: "big" }] });
    for (const place of ["/", "/usr", "/dev", "/etc"]) {
      const written = await run(`open("${place}/x", "w")`, { timeout_ms: 10_000 });
      expect({ place, ...written }).toMatchObject({ stderr: expect.stringMatching(/Read-only|Permission denied/) });
    }
    await expectUnharmed();
  });

  test("processes that leave their group and close everything are gone when the answer comes", async () => {
    const seconds = `${30_000 + Math.trunc(Math.random() * 60_000)}`;
    const told = await run(`
import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        os.execvp("sleep", ["sleep", "${seconds}"])
    os._exit(0)
print("left")
`);
    expect(told.stdout).toBe("left\n");
    const lines = readdirSync("/proc").flatMap((pid) => {
      try {
        return /^\d+$/.test(pid) ? [readFileSync(`/proc/${pid}/cmdline`, "utf8")] : [];
      } catch {
        return [];
      }
    });
    expect(lines.filter((line) => line === `sleep\0${seconds}\0`)).toEqual([]);
  });

  test("disturbing the process beside it costs its own answer only", async () => {
    const killed = (await send("import os\nos.kill(-1, 9)")).json;
    expect(killed.error).toMatchObject({
      code: "tool_failed",
      message: expect.stringContaining("Nothing of what it did"),
    });
    const forged = await run(`
import os, json
frame = json.dumps({"type": "file", "path": "../../escape.txt", "body": "eA=="}) + "\\n"
try:
    with open("/proc/%d/fd/1" % os.getppid(), "w") as out: out.write(frame)
except OSError as error: print(type(error).__name__)
`);
    expect(forged.files).toEqual([]);
    await expectUnharmed();
  });

  test("nothing of it is left on the host's disk", async () => {
    const directory = await mkdtemp(join(tmpdir(), "toolyard-box-"));
    const before = readdirSync(directory);
    await run('import os\nopen("/tmp/left", "w").write("x")\nos.makedirs("/dev/shm/y")');
    expect(readdirSync(tmpdir())).not.toContain("left");
    expect(readdirSync(directory)).toEqual(before);
    await rm(directory, { recursive: true });
  });
});

test(`without bubblewrap nothing is run, and the error names what to install ${verifies("NATIVE-2")}`, async () => {
  const bare = await startGateway({ env: { PATH: "/nowhere" } });
  try {
    const other = await bare.newTenant({ native_tools: ["run_code"] });
    const { status, json } = await other.client.send("post", "/v1/tools/invoke", {
      name: "run_code",
      arguments: { language: "python", code: "print(1)" },
    });
    expect(status).toBe(503);
    expect(json.error).toMatchObject({ code: "code_box_unavailable", message: expect.stringContaining("bubblewrap") });
  } finally {
    await bare.close();
  }
});
