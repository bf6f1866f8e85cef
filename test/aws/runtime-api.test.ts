/** The Lambda service that the other suites of this directory stand on, with functions of a few lines. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { createLambdaFunction, type Answer, type FunctionOptions, type LambdaFunction } from "./runtime-api.ts";

const handlers = `
  export const pid = async (event, context) => ({ pid: process.pid, event, tenant: context.tenantId, left: context.getRemainingTimeInMillis() });
  export const fails = async () => { throw new TypeError("this went wrong"); };
  export const exits = async () => process.exit(3);
  export const sleeps = async ({ ms }) => new Promise((done) => setTimeout(() => done("awake"), ms));
  export const large = async ({ bytes }) => "x".repeat(bytes);
  export const environment = async () => process.env;
  let ticks = 0;
  setInterval(() => (ticks += 1), 10);
  export const counted = async () => ticks;
  export const streams = awslambda.streamifyResponse(async ({ parts, end }, stream) => {
    const body = awslambda.HttpResponseStream.from(stream, { statusCode: 201, headers: { "x-a": "b" } });
    for (const part of parts) { body.write(part); await new Promise((done) => setTimeout(done, 50)); }
    if (end === "fail") throw new RangeError("after the first byte");
    if (end === "die") process.kill(process.pid, "SIGKILL");
    if (end === "hang") await new Promise(() => undefined);
    body.end();
  });
`;

let taskRoot: string;
let current: LambdaFunction | undefined;

beforeAll(async () => {
  taskRoot = await mkdtemp(join(tmpdir(), "toolyard-lambda-"));
  await writeFile(join(taskRoot, "small.mjs"), handlers);
  await writeFile(join(taskRoot, "broken.mjs"), `throw new Error("cannot be loaded");`);
});
afterEach(() => current?.close());
afterAll(() => rm(taskRoot, { recursive: true, force: true }));

function start(handler: string, options: Partial<FunctionOptions> = {}): LambdaFunction {
  current = createLambdaFunction({ name: "small", taskRoot, handler, timeoutMs: 5_000, ...options });
  return current;
}

function value(answer: Answer): unknown {
  if (answer.kind !== "whole") throw new Error(`not a whole answer: ${JSON.stringify(answer)}`);
  return JSON.parse(answer.body.toString("utf8"));
}

async function readParts(answer: Answer): Promise<{ text: string; parts: number; error: unknown; broke: boolean }> {
  if (answer.kind !== "streamed") throw new Error(`not streamed: ${JSON.stringify(answer)}`);
  const parts: Buffer[] = [];
  let broke = false;
  try {
    for await (const part of answer.body) parts.push(part as Buffer);
  } catch {
    broke = true;
  }
  return { text: Buffer.concat(parts).toString("utf8"), parts: parts.length, error: await answer.ended, broke };
}

describe.skipIf(inject("runtimeClientMissing") !== "")("a function under the runtime client", () => {
  test("gets events, and its environment serves one after the other", async () => {
    const fn = start("small.pid");
    const first = value(await fn.invoke({ a: 1 }));
    const second = value(await fn.invoke({ a: 2 }));
    expect([first, second]).toMatchObject([{ event: { a: 1 } }, { event: { a: 2 } }]);
    expect(second).toMatchObject({ pid: (first as { pid: number }).pid, left: expect.any(Number) });
    expect(fn.started).toBe(1);
  });

  test("has as many environments as it may, and the rest waits", async () => {
    const fn = start("small.sleeps", { concurrency: 2 });
    const answers = await Promise.all(Array.from({ length: 5 }, () => fn.invoke({ ms: 50 })));
    expect(answers.map(value)).toEqual(Array.from({ length: 5 }, () => "awake"));
    expect(fn.started).toBe(2);
  });

  test("serves each request in another environment where that is asked for", async () => {
    const fn = start("small.pid", { concurrency: 2, spreads: true });
    const pids: unknown[] = [];
    for (let turn = 0; turn < 4; turn += 1) {
      pids.push((value(await fn.invoke({})) as { pid: number }).pid);
      // Who has answered is free when it asks for the next one; on a busy machine that is later.
      await vi.waitUntil(() => fn.environments.every(({ isFree }) => isFree), { timeout: 10_000 });
    }
    expect(new Set(pids).size).toBe(2);
    expect(pids.slice(2)).toEqual(pids.slice(0, 2));
  });

  test("keeps tenants apart where it is told to, and tells the function", async () => {
    const fn = start("small.pid", { perTenant: true });
    const pids = new Map<string, unknown>();
    for (const tenantId of ["a", "b", "a"]) {
      const { pid, tenant } = value(await fn.invoke({}, { tenantId })) as { pid: number; tenant: string };
      expect(tenant).toBe(tenantId);
      expect(pids.get(tenantId) ?? pid).toBe(pid);
      pids.set(tenantId, pid);
    }
    expect(new Set(pids.values()).size).toBe(2);
    expect(() => fn.invoke({})).toThrow(/InvalidParameterValue/);
  });

  test("has the environment of a function and nothing of ours", async () => {
    const env = value(await start("small.environment", { env: { OWN: "1" } }).invoke({}));
    expect(env).toMatchObject({ OWN: "1", AWS_LAMBDA_FUNCTION_NAME: "small", LAMBDA_TASK_ROOT: taskRoot });
    expect(env).not.toHaveProperty("HOME");
    expect(env).not.toHaveProperty("VITEST");
  });

  test("stands still between invocations", async () => {
    const fn = start("small.counted");
    const before = value(await fn.invoke({})) as number;
    await expect.poll(() => fn.environments[0]?.isFrozen()).toBe(true);
    await new Promise((done) => setTimeout(done, 500));
    expect(value(await fn.invoke({}))).toBeLessThan(before + 25);
  });

  test("streams: each part arrives by itself, behind the prelude", async () => {
    const answer = await start("small.streams").invoke({ parts: ["one", "two", "three"] });
    expect(answer).toMatchObject({ contentType: "application/vnd.awslambda.http-integration-response" });
    const { text, parts, error } = await readParts(answer);
    expect(text).toBe(`{"statusCode":201,"headers":{"x-a":"b"}}${"\0".repeat(8)}onetwothree`);
    expect(parts).toBeGreaterThanOrEqual(3);
    expect(error).toBeUndefined();
  });

  test("that fails after the first byte says so in its trailers and is used again", async () => {
    const fn = start("small.streams");
    const { error, broke } = await readParts(await fn.invoke({ parts: ["one"], end: "fail" }));
    expect([error, broke]).toMatchObject([{ errorType: "RangeError" }, true]);
    expect((await readParts(await fn.invoke({ parts: ["two"] }))).text).toMatch(/two$/);
    expect(fn.started).toBe(1);
  });

  test("whose process dies in the middle is started anew", async () => {
    const fn = start("small.streams");
    const { error, broke, text } = await readParts(await fn.invoke({ parts: ["one"], end: "die" }));
    expect([error, broke]).toMatchObject([{ errorType: "Runtime.ExitError" }, true]);
    expect(text).toMatch(/one$/);
    expect((await readParts(await fn.invoke({ parts: ["two"] }))).text).toMatch(/two$/);
    expect(fn.started).toBe(2);
  });

  test("is killed at its time limit", async () => {
    const fn = start("small.streams", { timeoutMs: 500 });
    const { error } = await readParts(await fn.invoke({ parts: ["one"], end: "hang" }));
    expect(error).toMatchObject({ errorType: "Sandbox.Timedout" });
    expect((await readParts(await fn.invoke({ parts: ["two"] }))).text).toMatch(/two$/);
  });

  test("that throws, exits or cannot be loaded is said to have failed", async () => {
    const errors: unknown[] = [];
    for (const handler of ["small.fails", "small.exits", "broken.handler", "small.missing"]) {
      const fn = start(handler);
      const answer = await fn.invoke({});
      errors.push(answer.kind === "failed" ? answer.error : answer);
      await fn.close();
    }
    expect(errors).toMatchObject([
      { errorType: "TypeError", errorMessage: "this went wrong" },
      { errorType: "Runtime.ExitError", errorMessage: expect.stringContaining("exit status 3") },
      { errorMessage: "cannot be loaded" },
      { errorType: "Runtime.HandlerNotFound" },
    ]);
  });

  test("is refused what is too large, both ways", async () => {
    const fn = start("small.large");
    expect(() => fn.invoke("x".repeat(6 * 1024 * 1024))).toThrow(/RequestTooLarge/);
    expect(await fn.invoke({ bytes: 7 * 1024 * 1024 })).toMatchObject({
      kind: "failed",
      error: { errorType: "Function.ResponseSizeTooLarge" },
    });
    expect(value(await fn.invoke({ bytes: 3 }))).toBe("xxx");
  });

  test("frozen in the middle goes on where it was", async () => {
    const fn = start("small.sleeps");
    await fn.warm(1);
    const answer = fn.invoke({ ms: 100 });
    fn.environments[0]?.freeze();
    await new Promise((done) => setTimeout(done, 400));
    expect(await fn.environments[0]?.isFrozen()).toBe(true);
    fn.environments[0]?.thaw();
    expect(value(await answer)).toBe("awake");
  });
});
