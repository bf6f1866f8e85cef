import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { PluginRun } from "../ports/plugin-runner.ts";
import { encodeBoxFrame, readBoxAnswer, readBoxRequest, toBoxRequest, type BoxFrame } from "./box-protocol.ts";

const run: PluginRun = {
  tenant: "ten_1",
  command: ["python3", "tool.py"],
  environment: { KEY: "值" },
  stdin: '{"a":1}',
  timeoutMs: 1_000,
  maxOutputBytes: 2_000,
};
const exit: BoxFrame = { type: "exit", exitCode: 0, ended: "exit", durationMs: 5 };
const bytesOf = (frames: readonly BoxFrame[]): Buffer => Buffer.from(frames.map(encodeBoxFrame).join(""));

async function* inParts(bytes: Buffer, sizes: readonly number[] = [bytes.length]): AsyncGenerator<Uint8Array> {
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

describe("the request to a plugin box", () => {
  test("carries a run with its files, and nothing that belongs to this side", () => {
    const files = [{ path: "bin/tool", body: Buffer.from([0, 255, 10]) }];
    const signal = AbortSignal.timeout(1_000);
    const text = toBoxRequest({ ...run, answerWithinMs: 500, files, signal, onStdout: () => undefined });
    expect(readBoxRequest(JSON.parse(text))).toEqual({ ...run, answerWithinMs: 500, files });
    expect(readBoxRequest(JSON.parse(toBoxRequest(run)))).toEqual(run);
  });

  test.for([
    ["tenant", { tenant: "" }],
    ["command.0", { command: [] }],
    ["timeoutMs", { timeoutMs: -1 }],
    ["files.0.body", { files: [{ path: "a", body: "not base64!" }] }],
    ["environment.A", { environment: { A: 1 } }],
  ] as const)("names the field that is malformed: %s", ([param, wrong]) => {
    expect(() => readBoxRequest({ ...run, ...wrong })).toThrow(
      expect.objectContaining({ code: "invalid_request", details: { param } }),
    );
  });

  test("is refused with fields that nobody knows", () => {
    expect(() => readBoxRequest({ ...run, shell: true })).toThrow(/malformed/);
    expect(() => readBoxRequest(null)).toThrow(/malformed/);
  });
});

describe("the answer of a plugin box", () => {
  test("gives the same end, however its bytes were split", async () => {
    const texts = fc.array(fc.string({ unit: "grapheme", maxLength: 20 }), { maxLength: 6 });
    const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 });
    await fc.assert(
      fc.asyncProperty(texts, fc.string(), sizes, async (said, stderr, parts) => {
        const frames: readonly BoxFrame[] = [
          { type: "started" },
          { type: "alive" },
          ...said.map((data): BoxFrame => ({ type: "stdout", data })),
          { type: "stderr", data: stderr },
          exit,
        ];
        const heard: string[] = [];
        const onStdout = (part: string): void => void heard.push(part);
        const end = await readBoxAnswer(inParts(bytesOf(frames), parts), { onStdout });
        expect(end).toEqual({ stdout: said.join(""), stderr, exitCode: 0, ended: "exit", durationMs: 5 });
        expect(heard).toEqual(said);
      }),
    );
  });

  test("throws what the box refused with", async () => {
    const refused: BoxFrame = { type: "refused", code: "invalid_definition", message: "no such path", param: "files" };
    await expect(readBoxAnswer(inParts(bytesOf([refused])))).rejects.toMatchObject({
      code: "invalid_definition",
      message: "no such path",
      details: { param: "files" },
    });
  });

  test.for<[string, readonly BoxFrame[]]>([
    ["tool_unreachable", []],
    ["tool_unreachable", [{ type: "alive" }]],
    ["outcome_unknown", [{ type: "started" }, { type: "stdout", data: "half" }]],
  ])("that ends too early is %s", async ([code, frames]) => {
    await expect(readBoxAnswer(inParts(bytesOf(frames)))).rejects.toMatchObject({ code });
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield bytesOf(frames);
      throw new Error("the connection broke");
    }
    await expect(readBoxAnswer(broken())).rejects.toMatchObject({ code });
  });

  test("in no known form is not taken for a result", async () => {
    for (const line of ["<html>\n", '{"type":"exit"}\n', '{"type":"refused","code":"no_such_code","message":"x"}\n']) {
      await expect(readBoxAnswer(inParts(Buffer.from(line)))).rejects.toMatchObject({ code: "outcome_unknown" });
    }
  });

  test("is left by a caller that goes, with what was said so far", async () => {
    const gone = new AbortController();
    async function* endless(): AsyncGenerator<Uint8Array> {
      yield bytesOf([{ type: "started" }, { type: "stdout", data: "so far" }]);
      await new Promise(() => undefined);
    }
    const reading = readBoxAnswer(endless(), { signal: gone.signal, onStdout: () => gone.abort() });
    expect(await reading).toMatchObject({ stdout: "so far", exitCode: null, ended: "aborted" });
  });
});
