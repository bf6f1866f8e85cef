import * as z from "zod";
import { describe, expect, test } from "vitest";
import { isJsonObject, type JsonValue } from "../../json.ts";
import golden from "../../../../../test/fixtures/vcp/stdio-cases.json" with { type: "json" };
import { verifies } from "../../../../../test/support/verifies.ts";
import { localTimestamp, outcomeOfResult, outcomeOfStdout, type VcpOutcome } from "./outcome.ts";
import { contentOf } from "./reply.ts";

const caseSchema = z.object({
  case: z.string(),
  stdout: z.string().nullable(),
  stderr: z.string(),
  exitCode: z.number(),
  messageAppendedForModel: z.object({ content: z.unknown() }),
  humanTool: z.object({ status: z.number(), body: z.unknown() }),
});

const speaker = { name: "EchoSync", at: new Date(0) };
const limitMs = 4_000;

function outcomeOf({ stdout, stderr, exitCode }: z.output<typeof caseSchema>): VcpOutcome {
  return outcomeOfStdout(
    speaker,
    stdout === null
      ? { stdout: "", stderr, exitCode: null, ended: "timeout" }
      : { stdout, stderr, exitCode, ended: "exit" },
    limitMs,
  );
}

function masked(value: JsonValue): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll(localTimestamp(speaker.at), "<TS>"));
}

/** What upstream appends for the model, put together as its loop does. */
function payloadOf(outcome: VcpOutcome): unknown {
  const value = masked(outcome.kind === "success" ? outcome.value : outcome.error) as JsonValue;
  const parts = outcome.kind === "success" ? contentOf(value) : undefined;
  const text =
    outcome.kind === "success" ? JSON.stringify(value, null, 2) : `[错误] 执行错误: ${JSON.stringify(value)}`;
  const list = parts ?? [{ type: "text", text }];
  if (list.some((part) => part["type"] === "image_url")) {
    return [{ type: "text", text: "<!-- VCP_TOOL_PAYLOAD -->\nResults:" }, ...list];
  }
  return `<!-- VCP_TOOL_PAYLOAD -->\n${JSON.stringify(list)}`;
}

describe(`outcomes of plugins ${verifies("VCP-4")}`, () => {
  test.for(z.array(caseSchema).parse(golden.cases))("is upstream's for $case", (observed) => {
    const outcome = outcomeOf(observed);
    expect(payloadOf(outcome)).toEqual(observed.messageAppendedForModel.content);
    const body = masked(outcome.kind === "success" ? outcome.value : outcome.error);
    expect(body).toEqual(observed.humanTool.body);
    // Clients show the object as it comes.
    expect(JSON.stringify(body)).toBe(JSON.stringify(observed.humanTool.body));
    expect(outcome.kind).toBe(observed.humanTool.status === 200 ? "success" : "error");
  });

  test.for([
    { stdout: "", advice: /wrote nothing to stdout/ },
    { stdout: " \n", advice: /wrote nothing to stdout/ },
    { stdout: 'Loading…\n{"status":"success"}', advice: /whole of stdout .* belongs on stderr/ },
    { stdout: '{"status":"success"}\n{"status":"success"}', advice: /whole of stdout .* belongs on stderr/ },
    { stdout: "{'status': 'success'}", advice: /whole of stdout .* belongs on stderr/ },
    { stdout: '{"result":1}', advice: /'status', "success" or "error"/ },
    { stdout: '{"status":"ok","result":1}', advice: /'status', "success" or "error"/ },
    { stdout: "[1]", advice: /is JSON, but no object/ },
  ])("says what an author can do about $stdout", ({ stdout, advice }) => {
    const outcome = outcomeOfStdout(speaker, { stdout, stderr: "", exitCode: 0, ended: "exit" }, limitMs);
    expect(outcome).toMatchObject({ kind: "error", reason: "crashed", advice: expect.stringMatching(advice) });
  });

  test.for([{ exitCode: 137 }, { exitCode: null }])("says that a process was killed ($exitCode)", ({ exitCode }) => {
    const outcome = outcomeOfStdout(speaker, { stdout: "", stderr: "", exitCode, ended: "exit" }, limitMs);
    expect(outcome).toMatchObject({ advice: expect.stringContaining("killed by a signal") });
  });

  test("says which field of the manifest starts what could not be started, and how long it had", () => {
    const exit = { stdout: "", stderr: "not found", exitCode: null };
    expect(outcomeOfStdout(speaker, { ...exit, ended: "spawn" }, limitMs)).toMatchObject({
      advice: expect.stringContaining("'entryPoint.command'"),
    });
    expect(outcomeOfStdout(speaker, { ...exit, ended: "timeout" }, limitMs)).toMatchObject({
      advice: expect.stringMatching(/4000 ms.*'communication\.timeout'/),
    });
  });

  test("honours what the specification says beside the result", () => {
    const stdout = JSON.stringify({ status: "success", result: "r", messageForAI: "Look at it.", base64: "AAAA" });
    const outcome = outcomeOfStdout(speaker, { stdout, stderr: "", exitCode: 0, ended: "exit" }, limitMs);
    expect(outcome).toMatchObject({ kind: "success", messageForAI: "Look at it.", base64: "AAAA" });
  });

  test("copies who asked to the result", () => {
    const outcome = outcomeOfResult({ ...speaker, maid: "Nova" }, { a: 1 });
    const value = outcome.kind === "success" && isJsonObject(outcome.value) ? outcome.value : {};
    expect(Object.keys(value)).toEqual(["a", "MaidName", "timestamp"]);
  });

  test.for([
    ["a list stays a list", [1, 2], [1, 2]],
    ["a number", 42, { original_plugin_output: 42 }],
    ["text that holds a list", "[1]", [1]],
    ["nothing", null, {}],
  ] as const)("reads %s", ([, result, expected]) => {
    const outcome = outcomeOfResult(speaker, structuredClone(result) as JsonValue);
    const { value } = outcome.kind === "success" ? outcome : { value: null };
    expect(isJsonObject(value) ? { ...value, timestamp: undefined } : value).toEqual(expected);
  });

  test("says how a run ended that could say nothing itself", () => {
    const said = (exit: Parameters<typeof outcomeOfStdout>[1]): unknown => {
      const outcome = outcomeOfStdout(speaker, exit, limitMs);
      return outcome.kind === "error" ? outcome.error["plugin_execution_error"] : outcome;
    };
    const nothing = { stdout: "", stderr: "", exitCode: null };
    expect(said({ ...nothing, ended: "timeout" })).toBe('Plugin "EchoSync" execution timed out.');
    expect(said({ ...nothing, ended: "spawn", stderr: "not found" })).toBe(
      'Plugin "EchoSync" could not be started. not found',
    );
    expect(said({ ...nothing, exitCode: 7, stderr: "trace", ended: "exit" })).toBe(
      'Plugin "EchoSync" exited with code 7. Stderr: trace',
    );
    expect(said({ ...nothing, ended: "timeout", stdout: "step 1", stderr: "no route" })).toBe(
      'Plugin "EchoSync" execution timed out. Stdout: step 1 Stderr: no route',
    );
    expect(said({ ...nothing, exitCode: 0, stderr: "no module", ended: "exit" })).toBe(
      'Plugin "EchoSync" exited successfully but did not provide a valid initial JSON response. Stdout:  Stderr: no module',
    );
  });
});
