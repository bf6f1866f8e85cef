/**
 * A gateway killed while a node of VCP is connected to it: the node connects to another one, which calls its tools,
 * and calls that were under way end with what is known of them.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { startVcpNode, vcpManifest, type VcpNode } from "../support/vcp-node.ts";
import { verifies } from "../support/verifies.ts";
import { eventually, type Instance } from "./instance.ts";
import { openDirectory, startLane, type Lane } from "./lane.ts";

const endsWithinMs = 30_000;

let lane: Lane;
beforeAll(async () => {
  lane = await startLane(openDirectory);
});
afterAll(() => lane.close());

describe(`a gateway that a node of VCP is connected to ${verifies("VCP-15")}`, () => {
  test("is killed: the node goes on at another, and no call is left open", async () => {
    const tenant = await lane.newTenant();
    const { key } = await tenant.newKey({ scopes: ["node"] });
    const connect = (to: Instance, run?: () => unknown): Promise<VcpNode> =>
      startVcpNode({
        url: `${to.driver.url.replace("http", "ws")}/vcp-distributed-server`,
        key,
        tools: [vcpManifest("Echo", { communication: { protocol: "stdio", timeout: 60_000 } })],
        ...(run === undefined ? {} : { run }),
      });
    const invoke = async (more: Json = {}): Promise<Json> =>
      (await tenant.client.send("post", "/v1/tools/invoke", { uri: "vcp://Echo", arguments: {}, ...more })).json;
    const callOf = (id: string): Promise<Json> => tenant.client.get(`/v1/calls/${id}`);
    const ended = async (id: string): Promise<Json> => {
      const call = await callOf(id);
      return ["completed", "failed", "unknown"].includes(call.state) ? call : undefined;
    };
    const serverOf = async (): Promise<string | undefined> =>
      (await tenant.client.get("/v1/tools")).data.find(({ name }: Json) => name === "Echo")?.serverId;

    const victim = await lane.startInstance();
    const open: VcpNode[] = [];
    try {
      const node = await connect(victim);
      open.push(node);
      await eventually("The tool", endsWithinMs, serverOf);
      const waiting = invoke();
      const queued = await invoke({ async: true });
      await eventually("Both calls", endsWithinMs, () => (node.asked.length === 2 ? true : undefined));
      victim.kill();
      await victim.ended;
      await eventually("The end of the connection", endsWithinMs, () =>
        node.client.socket.readyState === node.client.socket.CLOSED ? true : undefined,
      );

      const back = await connect(lane.survivor, () => "back");
      open.push(back);
      const isAtSurvivor = async (): Promise<true | undefined> => (await serverOf()) === back.serverId || undefined;
      await eventually("The tool at the other gateway", endsWithinMs, isAtSurvivor);
      expect((await invoke()).content).toContain("back");

      // What a write has done there is not known, and it is not asked for again.
      const { error } = await waiting;
      expect(error.code).toBe("outcome_unknown");
      expect(await callOf(error.call_id)).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
      const late = await eventually("The queued call's end", endsWithinMs, () => ended(queued.id));
      expect(late).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
      expect(back.asked).toHaveLength(1);
    } finally {
      await Promise.all(open.map((each) => each.close()));
      await victim.close();
    }
  });
});
