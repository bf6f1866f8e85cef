/** Push by API Gateway's `@connections`, by the real client, against a server that keeps its rules. */
import { randomBytes } from "node:crypto";
import { createConnectionsPush } from "@toolyard/platform/aws/connections-push";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RemotePush } from "@toolyard/core/ports/push";
import type { AwsFault } from "../support/aws/aws-server.ts";
import { startConnectionsServer, type ConnectionsServer } from "../support/aws/connections-server.ts";
import { describePush } from "./push.ts";

let api: ConnectionsServer;
beforeAll(async () => {
  api = await startConnectionsServer();
});
afterAll(() => api.close());

const { push, connect } = {
  push: (url = api.stageUrl): RemotePush => {
    const { region, credentials } = api.client;
    return createConnectionsPush({ url, client: { region, credentials } });
  },
  connect: () => {
    // As API Gateway makes them, with characters that a path cannot hold as they are.
    const id = `${randomBytes(9).toString("base64").slice(0, 10)}/+=`;
    const received: string[] = [];
    api.open.set(id, received);
    return { id, received, close: async () => void api.open.delete(id) };
  },
};

describePush("@connections", async () => ({ push: push(), connect: async () => connect() }));

describe("push by @connections", () => {
  test("takes frames of up to 128 KB, and says what to do with larger ones", async () => {
    const { id, received } = connect();
    const fits = "x".repeat(128 * 1024);
    expect(await push().send(id, fits)).toBe("sent");
    expect(received[0]?.length).toBe(fits.length);
    const before = api.requests.length;
    await expect(push().send(id, `${"字".repeat(44_000)}`)).rejects.toMatchObject({ code: "payload_too_large" });
    expect(api.requests.length).toBe(before);
  });

  test("takes an id that no connection can have for one that is gone", async () => {
    expect(await push().send("not an id", "x")).toBe("gone");
  });

  test.for([
    ["throttled", { kind: "reply", reply: { status: 429, headers: { "x-amzn-errortype": "LimitExceededException" } } }],
    ["failing", { kind: "reply", reply: { status: 500 } }],
    ["cut", { kind: "reset" }],
  ] as const satisfies readonly (readonly [string, AwsFault])[])("is tried again where it is %s", async ([, fault]) => {
    const { id, received } = connect();
    api.faults.push(fault, fault);
    expect(await push().send(id, "frame")).toBe("sent");
    expect(received).toEqual(["frame"]);
  });

  test("ends a connection, and minds none that has ended or never was", async () => {
    const [own, other] = [connect(), connect()];
    await push().end(own.id);
    expect(await push().send(own.id, "late")).toBe("gone");
    expect(await push().send(other.id, "frame")).toBe("sent");
    for (const id of [own.id, "not an id"]) await push().end(id);
    await expect(push(api.url).end(other.id)).rejects.toMatchObject({ code: "push_unavailable" });
  });

  test("says which setting is wrong where the address is not the stage's own", async () => {
    const { id } = connect();
    await expect(push(api.url).send(id, "x")).rejects.toMatchObject({
      code: "push_unavailable",
      message: expect.stringContaining("PUSH_URL"),
    });
  });
});
