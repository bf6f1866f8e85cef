import { describe, expect, it } from "vitest";
import { createNativeBench } from "../../../../../test/support/native-tools.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { parseJson } from "../../json.ts";
import { deliveryOf } from "../../errors/delivery.ts";

async function thrownBy(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => {
      throw new Error("it succeeded");
    },
    (error: unknown) => error,
  );
}

describe(`file tools in a session ${verifies("CHAT-9", "CHAT-8")}`, () => {
  it("read what was written, wherever a leading slash points", async () => {
    const bench = createNativeBench();
    const content = '{"version": "2.3.1", "name": "MyApp", "author": "DevTeam"}';
    await bench.run("write_file", { path: "/tmp/config.json", content });
    expect(await bench.run("read_file", { path: "/tmp/config.json" })).toEqual({
      mediaType: "text/plain",
      body: content,
    });
    expect(await bench.text("read_file", { path: "tmp/config.json" })).toBe(content);
  });

  it("tell what they did as JSON", async () => {
    const bench = createNativeBench();
    const run = async (name: string, args: Record<string, string>): Promise<unknown> =>
      parseJson(await bench.text(name, args));
    expect(await run("write_file", { path: "weather.txt", content: "北京天气：晴，温度25°C" })).toEqual({
      path: "weather.txt",
      bytes: 32,
      replaced: false,
    });
    expect(await run("write_file", { path: "./weather.txt", content: "雨" })).toMatchObject({ replaced: true });
    await bench.run("write_file", { path: "a/b.txt", content: "x" });
    expect(await run("list_files", {})).toMatchObject({
      files: [
        { path: "a/b.txt", bytes: 1, updated_at: expect.stringMatching(/^\d{4}-.*Z$/) as string },
        { path: "weather.txt", bytes: 3 },
      ],
      total: 2,
    });
    expect(await run("list_files", { path: "/a" })).toMatchObject({ files: [{ path: "a/b.txt" }] });
    expect(await run("delete_file", { path: "/weather.txt" })).toEqual({ path: "weather.txt", deleted: true });
    expect(await run("list_files", {})).toMatchObject({ total: 1 });
  });

  it("see the files of their own session only", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "mine" });
    for (const other of [{ sessionId: "s2" }, { sessionId: "s3", tenant: "ten_b" }]) {
      expect(await thrownBy(bench.run("read_file", { path: "f" }, other))).toMatchObject({ code: "file_not_found" });
      expect(await thrownBy(bench.run("delete_file", { path: "f" }, other))).toMatchObject({ code: "file_not_found" });
    }
    expect(await bench.text("read_file", { path: "f" })).toBe("mine");
  });

  it.each(["read_file", "write_file", "delete_file"])("let no path of %s leave the workspace", async (name) => {
    const bench = createNativeBench();
    const args = { path: "../../etc/passwd", ...(name === "write_file" ? { content: "x" } : {}) };
    expect(await thrownBy(bench.run(name, args))).toMatchObject({
      code: "invalid_arguments",
      details: { param: "path" },
    });
  });

  it.each([
    ["read_file", { path: "f" }],
    ["write_file", { path: "f", content: "x" }],
    ["list_files", {}],
    ["delete_file", { path: "f" }],
  ])("say that %s needs a session, before anything happens", async (name, args) => {
    const bench = createNativeBench();
    const context = { sessionId: undefined } as unknown as { sessionId: string };
    const error = await thrownBy(bench.run(name, args, context));
    expect(error).toMatchObject({ code: "invalid_request", details: { param: "session_id" } });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  it("report a full workspace as an answer, so that the write is not in doubt", async () => {
    const bench = createNativeBench();
    const settings = { workspace_bytes: 1_024 };
    const error = await thrownBy(bench.run("write_file", { path: "f", content: "x".repeat(1_025) }, { settings }));
    expect(error).toMatchObject({ code: "workspace_full" });
    expect(deliveryOf(error)).toBe("answered");
    const missing = await thrownBy(bench.run("delete_file", { path: "nothing" }));
    expect(deliveryOf(missing)).toBe("answered");
  });

  it("leave a write in doubt where the database gave no answer", async () => {
    const bench = createNativeBench();
    bench.sessions.putFile = () => Promise.reject(new Error("connection lost"));
    expect(deliveryOf(await thrownBy(bench.run("write_file", { path: "f", content: "x" })))).toBe("uncertain");
  });

  it("replace a file only by text that is whole", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "report.md", content: "complete old text" });
    const error = await thrownBy(
      bench.run("write_file", { path: "report.md", content: "cut" }, { signal: AbortSignal.abort() }),
    );
    expect(error).toMatchObject({ code: "call_cancelled" });
    expect(await bench.text("read_file", { path: "report.md" })).toBe("complete old text");
  });

  it("list no more than a model can use, and say so", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "x" });
    const [file] = await bench.sessions.listFiles("ten_a", "s1", "");
    if (file === undefined) throw new Error("no file");
    bench.sessions.listFiles = () =>
      Promise.resolve(Array.from({ length: 1_500 }, (_, at) => ({ ...file, path: `f${at}` })));
    expect(parseJson(await bench.text("list_files", {}))).toMatchObject({
      total: 1_500,
      note: expect.stringContaining("first 1000") as string,
    });
  });
});

describe(`encodings of read_file ${verifies("CHAT-9")}`, () => {
  const gbk = Buffer.from("b1b1bea9cceccec4", "hex");

  async function benchWith(bytes: Uint8Array): Promise<ReturnType<typeof createNativeBench>> {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "" });
    const [file] = await bench.sessions.listFiles("ten_a", "s1", "");
    if (file === undefined) throw new Error("no file");
    await bench.blobs.put(file.blobKey, bytes);
    return bench;
  }

  it("are utf-8, gbk and ascii", async () => {
    expect(await (await benchWith(gbk)).text("read_file", { path: "f", encoding: "gbk" })).toBe("北京天文");
    expect(await (await benchWith(Buffer.from("plain"))).text("read_file", { path: "f", encoding: "ascii" })).toBe(
      "plain",
    );
    expect(await (await benchWith(Buffer.from("\ufeff北京"))).text("read_file", { path: "f" })).toBe("北京");
  });

  it.each([
    ["gbk bytes as utf-8", gbk, "utf-8"],
    ["an image as utf-8", Buffer.from("89504e470d0a1a0a00ff", "hex"), "utf-8"],
    ["a cut-off character", Buffer.from("北").subarray(0, 2), "utf-8"],
    ["utf-8 as ascii", Buffer.from("é"), "ascii"],
    ["a lone byte as gbk", Buffer.from([0x41, 0xff]), "gbk"],
  ])("make %s a tool error that names them", async (_what, bytes, encoding) => {
    const bench = await benchWith(bytes);
    expect(await thrownBy(bench.run("read_file", { path: "f", encoding }))).toMatchObject({
      code: "tool_failed",
      message: expect.stringMatching(/utf-8, gbk, ascii/) as string,
      details: { param: "encoding" },
    });
  });

  it.each([1, 2, 3, 5, 7])("survive reads of %i bytes that split characters", async (size) => {
    for (const [encoding, bytes] of [
      ["gbk", gbk],
      ["utf-8", Buffer.from("北京天文 🌧 ok")],
    ] as const) {
      const bench = await benchWith(bytes);
      const { get } = bench.blobs;
      bench.blobs.get = async (key, range) => {
        const blob = await get(key, range);
        if (blob === undefined) return undefined;
        async function* inParts(): AsyncGenerator<Uint8Array> {
          for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
        }
        return { ...blob, body: inParts() };
      };
      expect(await bench.text("read_file", { path: "f", encoding })).toBe(
        encoding === "gbk" ? "北京天文" : "北京天文 🌧 ok",
      );
    }
  });
});

describe(`parts of large files ${verifies("CHAT-19", "CHAT-9")}`, () => {
  it("are read by lines, line breaks as they are", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "one\r\ntwo\nthree\n\nfive" });
    const lines = (start_line: number, max_lines?: number): Promise<string> =>
      bench.text("read_file", { path: "f", start_line, ...(max_lines === undefined ? {} : { max_lines }) });
    expect(await lines(1, 1)).toBe("one\r\n");
    expect(await lines(2, 2)).toBe("two\nthree\n");
    expect(await lines(4)).toBe("\nfive");
    expect(await lines(9)).toBe("");
  });

  it("are refused as a whole beyond the tenant's cap, naming setting and arguments", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "a line\n".repeat(1_000) });
    const settings = { result_max_bytes: 2_048 };
    expect(await thrownBy(bench.run("read_file", { path: "f" }, { settings }))).toMatchObject({
      code: "tool_output_too_large",
      message: expect.stringMatching(/7000 bytes.*result_max_bytes.*start_line/) as string,
    });
    expect(await bench.text("read_file", { path: "f", start_line: 900, max_lines: 2 }, { settings })).toBe(
      "a line\na line\n",
    );
  });

  it("stop the reading as soon as they are there", async () => {
    const bench = createNativeBench();
    await bench.run("write_file", { path: "f", content: "x" });
    let given = 0;
    let isClosed = false;
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) {
          given += 1;
          yield Buffer.from("line\n");
        }
      } finally {
        isClosed = true;
      }
    }
    const { get } = bench.blobs;
    bench.blobs.get = async (key, range) => {
      const blob = await get(key, range);
      return blob === undefined ? undefined : { ...blob, body: endless() };
    };
    expect(await bench.text("read_file", { path: "f", start_line: 3, max_lines: 2 })).toBe("line\nline\n");
    expect(given).toBeLessThan(10);
    expect(isClosed).toBe(true);
  });
});
