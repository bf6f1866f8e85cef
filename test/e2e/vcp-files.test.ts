/** `file://` in arguments of VCP plugins: from the workspace, from nodes of the tenant, never from the gateway. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { endNodes, startNode } from "../support/node-process.ts";
import { startVcpNode, vcpManifest, type VcpNode } from "../support/vcp-node.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
let directory: string;
const nodes: VcpNode[] = [];

beforeAll(async () => {
  gateway = await startGateway({ timing: { leaseMs: 3_000, heartbeatMs: 500 }, tickEveryMs: 200 });
  directory = await mkdtemp(join(tmpdir(), "toolyard-files-"));
  await writeFile(join(directory, "note.txt"), "of the node");
  await writeFile(join(directory, "name with blanks.md"), "# two");
});
afterAll(async () => {
  await gateway.close();
  await rm(directory, { recursive: true, force: true });
});
beforeEach(async () => {
  tenant = await gateway.newTenant();
});
afterEach(async () => {
  await Promise.all(nodes.splice(0).map((node) => node.close()));
  await endNodes();
});

/** Gives back its arguments. */
const copying = { name: "Copy", files: { "plugin.sh": `printf '{"status":"success","result":{"got":%s}}' "$(cat)"` } };
/** Says how long an argument is. */
const measuring = {
  name: "Measure",
  manifest: { entryPoint: { command: "node plugin.mjs" } },
  files: {
    "plugin.mjs": `const { url } = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
      console.log(JSON.stringify({ status: "success", result: { length: url.length, start: url.slice(0, 22) } }));`,
  },
};
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const invoke = async (uri: string, args: Json, more: Json = {}, of = tenant): Promise<Json> =>
  (await of.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more })).json;
const got = async (args: Json, more: Json = {}, of = tenant): Promise<Json> => {
  const answer = await invoke("vcp://Copy", args, more, of);
  expect(answer, JSON.stringify(answer)).toHaveProperty("content");
  return JSON.parse(answer.content).got;
};

async function startFiles(): Promise<void> {
  const { key } = await tenant.newKey({ scopes: ["node"] });
  await startNode({ url: gateway.url, key, name: "files", directories: [directory] });
}

async function startVcp(
  serverName: string,
  run: (name: string, args: Json) => Json,
  names = ["Look"],
): Promise<VcpNode> {
  const { key } = await tenant.newKey({ scopes: ["node"] });
  const url = `${gateway.url.replace("http", "ws")}/vcp-distributed-server`;
  const node = await startVcpNode({ url, key, serverName, run, tools: names.map((name) => vcpManifest(name)) });
  nodes.push(node);
  const [first] = names;
  await expect
    .poll(async () => (await tenant.client.get("/v1/tools")).data.map(({ name }: Json) => name), { timeout: 10_000 })
    .toContain(first);
  return node;
}

describe(`a file in the arguments of a plugin ${verifies("VCP-16")}`, () => {
  test("comes from the session's workspace first", async () => {
    await importVcp(tenant.client, copying);
    const session = "files-of-a-session";
    await tenant.client.send("put", `/v1/sessions/${session}/files/notes/a.txt`, undefined, {
      raw: "of the workspace",
      headers: { "content-type": "text/plain" },
    });
    const expected = `data:text/plain;base64,${base64("of the workspace")}`;
    for (const url of ["file://notes/a.txt", "file:///notes/a.txt", "file:///workspace/notes/a.txt"])
      expect((await got({ url }, { session_id: session })).url).toBe(expected);
    expect((await got({ url: "file://notes/a.txt" })).url).toBe("file://notes/a.txt");
  });

  test("may be large, and is refused with the limit where it is too large to be sent", async () => {
    await importVcp(tenant.client, measuring);
    const session = "large-files-of-a-session";
    const put = (name: string, bytes: number): Promise<unknown> =>
      tenant.client.send("put", `/v1/sessions/${session}/files/${name}`, undefined, {
        raw: "x".repeat(bytes),
        headers: { "content-type": "text/plain" },
      });
    await put("large.txt", 9_000_000);
    const answer = await invoke("vcp://Measure", { url: "file://large.txt" }, { session_id: session });
    expect(JSON.parse(answer.content).length).toBe("data:text/plain;base64,".length + 12_000_000);
    const url = "file://large.txt";
    const often = await invoke("vcp://Measure", { url, more: [url, `see ${url}`] }, { session_id: session });
    expect(often.error).toMatchObject({ code: "payload_too_large" });
    await put("larger.txt", 26_000_000);
    const { error } = await invoke("vcp://Measure", { url: "file://larger.txt" }, { session_id: session });
    expect(error).toMatchObject({ code: "payload_too_large", message: expect.stringMatching(/26000000 .* 25164800 /) });
  });

  test("comes from a node that names its directory, wherever in the arguments it is", async () => {
    await importVcp(tenant.client, copying);
    await startFiles();
    const note = `file://${directory}/note.txt`;
    const whole = `data:text/plain;base64,${base64("of the node")}`;
    const args = { url: note, list: [{ deep: note }], text: `look at ${note}，please`, n: 1 };
    expect(await got(args)).toEqual({ url: whole, list: [{ deep: whole }], text: `look at ${whole}，please`, n: 1 });
    const blanks = `file://${directory}/name with blanks.md`;
    expect((await got({ url: blanks })).url).toBe(`data:text/markdown;base64,${base64("# two")}`);
    // What a person sees of the call stays readable.
    const [call] = (await tenant.client.get("/v1/calls?limit=1")).data;
    expect(JSON.stringify(call.input)).toContain(blanks);
  });

  test("is never one of the gateway's machine, nor another tenant's", async () => {
    await startFiles();
    const stranger = await gateway.newTenant();
    await importVcp(stranger.client, copying);
    const note = `file://${directory}/note.txt`;
    for (const url of [note, "file:///etc/hostname", `file://${gateway.dataDir}/toolyard.db`, "file://server/share/x"])
      expect((await got({ url }, {}, stranger)).url).toBe(url);
    await importVcp(tenant.client, copying);
    for (const url of ["file:///etc/hostname", `file://${directory}/../etc/hostname`, `file://${directory}/none.txt`])
      expect((await got({ url })).url).toBe(url);
  });

  test("is given to a plugin on another node once that has said that it is missing", async () => {
    await tenant.client.expect("patch", "/v1/settings", { vcp_node_directories: ["/pictures"] });
    const asked: Json[] = [];
    await startVcp("owner", (_name, { fileUrl }) => {
      asked.push(fileUrl);
      return { status: "success", fileData: base64("a cat"), mimeType: "image/png" };
    });
    const seen: string[] = [];
    await startVcp(
      "painter",
      (_name, { url }) => {
        seen.push(url);
        if (url.startsWith("file:")) throw new Error(`ENOENT: no such file or directory, open '${url}'`);
        return "painted";
      },
      ["Paint"],
    );
    const url = "file:///pictures/cat.png";
    const answer = await invoke("vcp://Paint", { url });
    expect(answer.content).toContain("painted");
    expect(seen).toEqual([url, `data:image/png;base64,${base64("a cat")}`]);
    expect(asked).toEqual([url]);
    // Any other failure is told at once.
    const other = await startVcp("breaker", () => Promise.reject(new Error("out of paint")), ["Break"]);
    expect((await invoke("vcp://Break", { url })).error.message).toContain("out of paint");
    expect(other.asked).toHaveLength(1);
  });

  test("is looked for once more where it was not there at first and a plugin misses it", async () => {
    const script = `input=$(cat); case "$input" in *data:*) printf '{"status":"success","result":"seen"}';;
      *) printf '{"status":"error","error":"FILE_NOT_FOUND: no such file"}';; esac`;
    await importVcp(tenant.client, { name: "Look", files: { "plugin.sh": script } });
    await tenant.client.expect("patch", "/v1/settings", { vcp_node_directories: ["/late"] });
    let tries = 0;
    await startVcp(
      "late",
      () => {
        tries += 1;
        if (tries === 1) throw new Error("not mounted yet");
        return { status: "success", fileData: base64("late"), mimeType: "text/plain" };
      },
      ["Other"],
    );
    expect((await invoke("vcp://Look", { url: "file:///late/x.txt" })).content).toContain("seen");
    expect(tries).toBe(2);
  });
});
