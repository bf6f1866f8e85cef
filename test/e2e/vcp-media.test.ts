/** Pictures, sounds and films in front of a model that shows what it was given (VCP-8). */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

const png = Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]), Buffer.from("rest")]);
const wav = Buffer.concat([Buffer.from("RIFF\0\0\0\0WAVEfmt ", "latin1"), Buffer.alloc(8)]);
const mp4 = Buffer.concat([Buffer.from("\0\0\0\x18ftypisom", "latin1"), Buffer.alloc(8)]);
const asUri = (type: string, bytes: Buffer): string => `data:${type};base64,${bytes.toString("base64")}`;

let gateway: Gateway;
let files: HttpStub;
let llm: LlmStub;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway();
  llm = await startLlmStub();
  files = await startHttpStub(({ target }) => {
    if (target.startsWith("/cat.png")) return { headers: { "content-type": "application/octet-stream" }, body: png };
    if (target === "/slow.png") return { headers: { "content-type": "image/png" }, body: png, delayMs: 2_000 };
    if (target === "/moved") return { status: 302, headers: { location: "/cat.png?token=secret" }, body: "" };
    if (target === "/page") return { headers: { "content-type": "text/html" }, body: "<p>no picture</p>" };
    if (target === "/large") return { headers: { "content-type": "image/png" }, body: Buffer.alloc(5_000, 1) };
    return { status: 404, body: "gone" };
  });
  tenant = await gateway.newTenant({ message_pipeline: "all", media_bytes: 4_096 });
  await tenant.addProvider(llm.url);
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), files.close()]);
});

beforeEach(() => {
  llm.requests.length = 0;
  files.requests.length = 0;
  llm.script(text("seen"));
});

function ask(parts: Json, more: Json = {}): Promise<Reply> {
  return tenant.client.send("post", "/v1/chat/completions", { messages: [{ role: "user", content: parts }], ...more });
}

async function given(parts: Json, more: Json = {}): Promise<Json> {
  const reply = await ask(parts, more);
  expect(reply.status).toBe(200);
  const request = llm.requests.at(-1) as Json;
  return request.messages[0].content;
}

const image = (url: string): Json => ({ type: "image_url", image_url: { url } });

describe(`media ${verifies("VCP-8")}`, () => {
  test("reach the model as its back end takes them, whatever form they came in", async () => {
    const base64 = png.toString("base64");
    expect(
      await given([
        { type: "text", text: "look" },
        { type: "image_url", image_url: { url: asUri("image/png", png), detail: "low" } },
        { type: "image_url", image_url: base64 },
        { type: "image", source: { type: "base64", media_type: "image/png", data: base64 } },
        { type: "input_audio", input_audio: { data: wav.toString("base64"), format: "wav" } },
        { type: "audio_url", audio_url: { url: asUri("audio/wav", wav) } },
        { type: "video_url", video_url: { url: asUri("video/mp4", mp4) } },
      ]),
    ).toEqual([
      { type: "text", text: "look" },
      { type: "image_url", image_url: { detail: "low", url: asUri("image/png", png) } },
      image(asUri("image/png", png)),
      image(asUri("image/png", png)),
      { type: "input_audio", input_audio: { data: wav.toString("base64"), format: "wav" } },
      { type: "input_audio", input_audio: { data: wav.toString("base64"), format: "wav" } },
      { type: "video_url", video_url: { url: asUri("video/mp4", mp4) } },
    ]);
  });

  test("are fetched, each address once, along redirects", async () => {
    const found = image(asUri("image/png", png));
    expect(await given([image(`${files.url}/moved`), image(`${files.url}/moved`)])).toEqual([found, found]);
    expect(files.requests.map(({ target }) => target)).toEqual(["/moved", "/cat.png?token=secret"]);
  });

  test("are read from the session's workspace, and from no other", async () => {
    const put = (session: string): Promise<Json> =>
      tenant.client.expect("put", `/v1/sessions/${session}/files/pics/cat.png`, undefined, {
        raw: new Uint8Array(png),
        headers: { "content-type": "image/png" },
      });
    await put("media-1");
    await put("media-2");
    const own = { session_id: "media-1" };
    const found = image(asUri("image/png", png));
    expect(await given([image("/mcp_workspaces/media-1/pics/cat.png")], own)).toEqual([found]);
    expect(await given([image("file:///mcp_workspaces/media-1/pics/cat.png")], own)).toEqual([found]);
    expect(await given([image("file://pics/cat.png")], own)).toEqual([found]);
    const foreign = await ask([image("file:///mcp_workspaces/media-2/pics/cat.png")], own);
    expect(foreign.json.error).toMatchObject({ code: "invalid_request", param: "messages" });
    const missing = await ask([image("/mcp_workspaces/media-1/pics/dog.png")], own);
    expect(missing.json.error.code).toBe("file_not_found");
  });

  test.each([
    ["a file of this machine", "file:///etc/passwd", 400, "nor on a connected node"],
    ["an address of the cloud's own", "http://169.254.169.254/latest/meta-data", 400, "cannot be fetched"],
    ["what is not there", "FILES/gone.png?key=secret-1", 400, "answered 404"],
    ["a page", "FILES/page", 400, "is no image"],
    ["what is too large to fetch", "FILES/large", 413, "more than 4096 bytes"],
    ["what is too large as it stands", asUri("image/png", Buffer.alloc(5_000)), 413, "more than 4096 bytes"],
    ["what is nothing", "not base 64!", 400, "is neither an address"],
    ["a broken data URI", "data:image/png;base64,a b*", 400, "is not base 64"],
  ])("are refused before the model is asked: %s", async (_what, url, status, reason) => {
    const reply = await ask([image(url.replace("FILES", files.url))]);
    expect(reply.status).toBe(status);
    expect(reply.json.error.message).toContain(reason);
    expect(reply.text).not.toContain("secret-1");
    expect(llm.requests).toEqual([]);
    const call = await tenant.client.get("/v1/calls?limit=1");
    expect(call.data[0]).toMatchObject({ state: "failed" });
  });

  test("are bounded together, too", async () => {
    const parts = Array.from({ length: 6 }, (_, at) =>
      image(asUri("image/png", Buffer.concat([png, Buffer.alloc(3_000, at)]))),
    );
    const reply = await ask(parts);
    expect(reply.status).toBe(413);
    expect(reply.json.error.message).toContain("together");
    // The same one counts in every place: it is sent as often.
    const same = await ask(Array.from({ length: 6 }, () => parts[0]));
    expect(same.status).toBe(413);
    expect(same.json.error.message).toContain("together");
  });
});

describe(`media that are put into words ${verifies("VCP-8")}`, () => {
  const asks = (mark: string, url: string, more: Json = {}): Promise<Reply> =>
    tenant.client.send("post", "/v1/chat/completions", {
      model: "stub-1",
      messages: [
        { role: "system", content: `Look. ${mark}` },
        { role: "user", content: [{ type: "text", text: "what?" }, image(url)] },
      ],
      ...more,
    });
  const described = "what?\n\n<VCP_MULTIMODAL_INFO>\nDescribe it.\na cat\n</VCP_MULTIMODAL_INFO>";
  const picture = (at: number): string => asUri("image/png", Buffer.concat([png, Buffer.from([at])]));

  beforeAll(async () => {
    await tenant.client.expect("patch", "/v1/settings", {
      media_translation_model: "eyes",
      media_translation_prompt: "Describe it.",
    });
    await tenant.addProvider(llm.url, { models: { eyes: "eyes-1" } });
  });
  beforeEach(() => llm.respond((body) => text(body["model"] === "eyes-1" ? "a cat" : "seen")));

  test("are known to the model by their words, and asked for once", async () => {
    const reply = await asks("{{TransBase64}}", picture(1));
    expect(reply.status).toBe(200);
    const [eyes, chat] = llm.requests as Json[];
    expect(eyes.messages).toEqual([
      { role: "user", content: [{ type: "text", text: "Describe it." }, image(picture(1))] },
    ]);
    expect(chat.messages).toEqual([
      { role: "system", content: "Look." },
      { role: "user", content: [{ type: "text", text: described }] },
    ]);
    const { data } = await tenant.client.get("/v1/calls?kind=chat&limit=2");
    const own = reply.headers.get("x-toolyard-call-id");
    expect(data.map(({ id, tool, parent_id: parent }: Json) => [id === own, tool, parent])).toEqual([
      [false, "eyes", own],
      [true, "stub-1", null],
    ]);
    await asks("{{TransBase64}}", picture(1));
    expect(llm.requests).toHaveLength(3);
  });

  test("go on beside their words where the prompt says so, and as they are where it says that", async () => {
    await asks("{{TransBase64+}}", picture(2));
    const content = [{ type: "text", text: described }, image(picture(2))];
    expect((llm.requests.at(-1) as Json).messages[1].content).toEqual(content);
    llm.requests.length = 0;
    await asks("{{TransBase64}} {{ShowBase64}}", picture(3));
    expect(llm.requests).toHaveLength(1);
  });

  test("stay as they are where the other model fails, and that is told", async () => {
    llm.respond((body) =>
      body["model"] === "eyes-1" ? { json: { error: { message: "no" } }, status: 400 } : text("seen"),
    );
    expect((await asks("{{TransBase64}}", picture(4))).status).toBe(200);
    expect((llm.requests.at(-1) as Json).messages[1].content[1]).toEqual(image(picture(4)));
    expect(gateway.logged.some(({ message }) => message === "media were not put into words")).toBe(true);
  });
});

describe(`a chat whose messages take long to prepare ${verifies("VCP-8")}`, () => {
  test("stays its process's own, and is cancelled by its name", async () => {
    const timing = { leaseMs: 600, heartbeatMs: 150, cancelPollMs: 100 };
    const home = { dataDir: gateway.dataDir, adminKey: gateway.adminKey };
    const quick = await startGateway({ timing, tickEveryMs: 100, sharedWith: home });
    try {
      const client = quick.client(tenant.key);
      const messages = [{ role: "user", content: [image(`${files.url}/slow.png`)] }];
      const answer = await client.send("post", "/v1/chat/completions", { messages });
      expect(answer.status).toBe(200);
      const under = client.send("post", "/v1/chat/completions", { messages, requestId: "slow-1" });
      await expect
        .poll(async () => (await client.send("post", "/v1/interrupt", { requestId: "slow-1" })).status)
        .toBe(200);
      const cancelled = await under;
      expect(cancelled.status).toBe(499);
      expect(cancelled.json.error.code).toBe("request_cancelled");
      expect(llm.requests).toHaveLength(1);
    } finally {
      await quick.close();
    }
  });
});
