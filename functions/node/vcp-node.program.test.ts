import { describe, expect, onTestFinished, test } from "vitest";
import type { JsonObject } from "@toolyard/core/json";
import { unscripted } from "../../test/support/fake-core.ts";
import { verifies } from "../../test/support/verifies.ts";
import type { LinkHandlers } from "./link.ts";
import { VcpNodeSession } from "./vcp-node.ts";

const manifest = {
  name: "Echo",
  displayName: "Echo",
  pluginType: "synchronous",
  entryPoint: { type: "nodejs", command: "node x.js" },
  capabilities: { invocationCommands: [{ commandIdentifier: "Echo", description: "Says it again." }] },
  communication: { protocol: "stdio", timeout: 60_000 },
};
const registration = JSON.stringify({
  type: "register_tools",
  data: { serverName: "lab", capabilities: { cancelTool: true }, tools: [manifest] },
});

interface Given {
  /** What the gateway answers besides registrations and calls. */
  readonly answer?: (message: JsonObject) => Promise<JsonObject>;
  readonly directories?: () => Promise<readonly string[]>;
}

/** A session between a program and a gateway that the test plays. */
function open({ answer = () => Promise.resolve({}), directories = () => Promise.resolve([]) }: Given = {}): {
  readonly session: VcpNodeSession;
  readonly sent: JsonObject[];
  readonly asked: JsonObject[];
  readonly closed: (readonly [code: number, reason: string])[];
  readonly call: (run: string) => void;
  readonly cancel: (run: string) => void;
  isFull: boolean;
} {
  const sent: JsonObject[] = [];
  const asked: JsonObject[] = [];
  const closed: (readonly [number, string])[] = [];
  const done = Promise.withResolvers<void>();
  let handlers: LinkHandlers | undefined;
  const ask = async <T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T> => {
    asked.push(message);
    switch (message["type"] as string) {
      case "node.register":
        return read({ type: "node.registered", beat_ms: 60_000, hidden: [] });
      case "node.accept":
        return read({ type: "node.accepted", input: { arguments: { text: "x" } } });
      case "node.beat":
        return read({ type: "node.beaten", known: [], cancelled: [] });
      default:
        return read(await answer(message));
    }
  };
  const session = new VcpNodeSession({
    socket: {
      send(frame) {
        if (!opened.isFull) sent.push(frame);
        return !opened.isFull;
      },
      close: (code, reason) => void closed.push([code, reason]),
    },
    url: "",
    egress: unscripted("egress"),
    runner: unscripted("runner"),
    log: { log: () => undefined },
    directories,
    createLink(given) {
      handlers = given;
      return { run: () => done.promise, close: () => done.resolve(), ask, askNow: ask };
    },
  });
  onTestFinished(() => session.end());
  const opened = {
    session,
    sent,
    asked,
    closed,
    call: (run: string) =>
      handlers?.onEvent({ type: "node.call", data: { run, call_id: `call-${run}`, tool: "Echo" } }),
    cancel: (run: string) => handlers?.onEvent({ type: "node.cancel", data: { run } }),
    isFull: false,
  };
  return opened;
}

const typesOf = (frames: readonly JsonObject[]): unknown[] => frames.map(({ type }) => type);

describe(`a node of VCP behind a socket ${verifies("VCP-15")}`, () => {
  test("is not taken to have begun what its socket did not take", async () => {
    const node = open();
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked)).toContain("node.beat");
    node.isFull = true;
    node.call("r1");
    await expect.poll(() => typesOf(node.asked)).toContain("node.result");
    expect(node.asked.find(({ type }) => type === "node.result")).toMatchObject({ run: "r1", status: "declined" });
  });

  test("has a call stopped that it cannot be told of", async () => {
    const node = open();
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked)).toContain("node.beat");
    node.call("r1");
    await expect.poll(() => typesOf(node.sent)).toContain("execute_tool");
    node.isFull = true;
    node.cancel("r1");
    await expect.poll(() => typesOf(node.asked)).toContain("node.result");
    expect(node.asked.find(({ type }) => type === "node.result")).toMatchObject({ run: "r1", status: "cancelled" });
  });

  test("ends itself alone with an answer that cannot be written down again", async () => {
    const node = open();
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked)).toContain("node.beat");
    node.call("r1");
    await expect.poll(() => typesOf(node.sent)).toContain("execute_tool");
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    node.session.receive(`{"type":"tool_result","data":{"requestId":"r1","status":"success","result":${deep}}}`);
    expect(node.closed).toEqual([[1011, expect.any(String)]]);
  });

  test("is closed where it cannot be registered for now, and ends as any other", async () => {
    const node = open({ directories: () => Promise.reject(new Error("The database is away.")) });
    node.session.receive(registration);
    await expect.poll(() => node.closed).toEqual([[1011, "The database is away."]]);
    await expect(node.session.end()).resolves.toBeUndefined();
  });

  test("registers anew where it failed before", async () => {
    let isAway = true;
    const node = open({ directories: () => (isAway ? Promise.reject(new Error("away")) : Promise.resolve([])) });
    node.session.receive(registration);
    await expect.poll(() => node.closed).toHaveLength(1);
    isAway = false;
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked)).toContain("node.register");
  });
});

describe(`frames of a node of VCP that wait ${verifies("VCP-24")}`, () => {
  const frame = (bytes: number): string => JSON.stringify({ type: "other", data: "x".repeat(bytes) });

  test("until it has registered are a megabyte at most", async () => {
    const node = open();
    node.session.receive(frame(600_000));
    expect(node.closed).toEqual([]);
    node.session.receive(frame(600_000));
    expect(node.closed).toEqual([[1009, expect.stringContaining("1048576")]]);
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked).filter((type) => type === "vcp.frame")).toHaveLength(1);
  });

  test("until they are answered are a megabyte at most beside one of any length, and give their room back", async () => {
    const answers: (() => void)[] = [];
    const node = open({ answer: () => new Promise((give) => answers.push(() => give({}))) });
    node.session.receive(registration);
    await expect.poll(() => typesOf(node.asked)).toContain("node.beat");
    for (let round = 0; round < 2; round += 1) {
      node.session.receive(frame(4_000_000));
      node.session.receive(frame(600_000));
      node.session.receive(frame(400_000));
      await expect.poll(() => answers).toHaveLength(3);
      for (const give of answers.splice(0)) give();
      await new Promise((next) => setTimeout(next, 10));
    }
    node.session.receive(frame(4_000_000));
    node.session.receive(frame(1_000_000));
    expect(node.closed).toEqual([]);
    node.session.receive(frame(100_000));
    expect(node.closed).toEqual([[1009, expect.stringContaining("1048576")]]);
  });

  test("are 64 at most", () => {
    const node = open();
    for (let at = 0; at < 64; at += 1) node.session.receive(frame(1));
    expect(node.closed).toEqual([]);
    node.session.receive(frame(1));
    expect(node.closed).toEqual([[1008, "register tools first"]]);
  });

  test("are registrations, too: one of any length, and no others behind it beyond that", async () => {
    const wait = Promise.withResolvers<readonly string[]>();
    const node = open({ directories: () => wait.promise });
    const long = JSON.stringify({
      type: "register_tools",
      data: { serverName: "lab", tools: [manifest], padding: "x".repeat(2_000_000) },
    });
    node.session.receive(long);
    expect(node.closed).toEqual([]);
    node.session.receive(long);
    expect(node.closed).toEqual([[1009, expect.stringContaining("1048576")]]);
    wait.resolve([]);
    await expect.poll(() => typesOf(node.asked)).toContain("node.register");
  });
});
