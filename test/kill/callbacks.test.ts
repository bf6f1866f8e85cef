/**
 * Processes killed in the middle of the callback of an asynchronous plugin that does not try again: the result
 * that is stored is used, and told to who listens, once.
 */
import { callbackKillPoints } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { asyncPlugin, startDesks, type Desks } from "../support/async-plugin.ts";
import type { Json } from "../support/gateway-client.ts";
import { rawSend } from "../support/raw-send.ts";
import { connectSocket } from "../support/socket-client.ts";
import { importVcp } from "../support/vcp-plugins.ts";
import { verifies } from "../support/verifies.ts";
import { eventually } from "./instance.ts";
import { openDirectory, startLane, type Lane, type Site } from "./lane.ts";

const endsWithinMs = 40_000;
const body = { requestId: "t1", status: "Succeed", message: "made" };

let site: Site;
let lane: Lane;
let desks: Desks;
beforeAll(async () => {
  desks = await startDesks();
  site = await openDirectory();
  lane = await startLane(() => Promise.resolve(site));
});
afterAll(async () => {
  await lane.close();
  await desks.close();
});

/** The plugin's first answer is another process's. */
const ofCallback = callbackKillPoints.filter((point) => point !== "callback.awaited");

describe(`a process killed in a callback ${verifies("VCP-5", "VCP-12")}`, () => {
  test.each(ofCallback)("at %s leaves the result, and what is pushed, to the others", async (at) => {
    const tenant = await lane.newTenant();
    await importVcp(
      tenant.client,
      asyncPlugin("Maker", { webSocketPush: { enabled: true, messageType: "made", targetClientType: "Console" } }),
    );
    const listener = await connectSocket(`${lane.survivor.driver.url.replace("http", "ws")}/ws?client_type=Console`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    const victim = await lane.startInstance();
    try {
      const desk = desks.open();
      const { id } = await tenant.client.post("/v1/tools/invoke", {
        uri: "vcp://Maker",
        arguments: { desk: desk.url, waits: true, answer: { status: "success", requestId: "t1" } },
      });
      const base: string = desk.environment().CALLBACK_BASE_URL.replace(lane.survivor.driver.url, victim.driver.url);
      await victim.order({ kind: "stop", at, with: "SIGKILL" });
      await rawSend(`${base}/Maker/t1`, JSON.stringify(body)).catch(() => undefined);
      await victim.ended;
      expect(victim.output).toContain(`stopped at ${at}`);
      const ended = async (): Promise<Json> => {
        const call = await tenant.client.get(`/v1/calls/${id}`);
        return call.state === "completed" ? call : undefined;
      };
      const call = await eventually("The call's end", endsWithinMs, ended);
      expect(JSON.parse(call.result.preview)).toEqual(body);
      await eventually("The push", endsWithinMs, () => listener.of("made")[0]);
      expect(listener.of("made")).toMatchObject([{ type: "made", data: body }]);
      desk.go();
    } finally {
      await listener.close();
      await victim.close();
    }
  });
});
