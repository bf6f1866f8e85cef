/**
 * Sockets at VCP's own paths, on the server form (VCP-13, VCP-15): each is a connection like any other, with the
 * client type that its path stands for, and a session that translates what both sides say.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isJsonObject, parseJson, type JsonObject } from "@toolyard/core/json";
import { inputKey } from "@toolyard/core/nodes/input";
import { resultKey } from "@toolyard/core/nodes/results";
import { readAll } from "@toolyard/core/ports/blob-store";
import type { Connection } from "@toolyard/core/realtime/connection";
import { logSystemEvent } from "@toolyard/core/vcp/log/vcp-log";
import { ClientSession, type ReplayTiming } from "@toolyard/core/vcp/nodes/client-session";
import type { VcpAddress } from "@toolyard/core/vcp/nodes/client-types";
import type { VcpSession, VcpSocket } from "@toolyard/core/vcp/nodes/session";
import { createProcessPluginRunner } from "@toolyard/platform/local/process-plugin-runner";
import { AnsweredError, readEvent } from "../node/frames.ts";
import type { LinkHandlers, NodeLink } from "../node/link.ts";
import { VcpNodeSession } from "../node/vcp-node.ts";

const againMs = 500;

/** The answer to a message of the connection. */
export type Answer = (text: string) => Promise<string>;

export interface VcpConnection {
  readonly core: CoreDeps;
  readonly connection: Connection;
  readonly address: VcpAddress;
  /** Where it comes from, for clients that do not name their device. */
  readonly from: string;
  readonly answer: Answer;
  readonly socket: VcpSocket;
  readonly replay?: ReplayTiming | undefined;
}

export function createVcpSession(given: VcpConnection): VcpSession {
  const { core, address, from, socket, replay } = given;
  if (address.path === "vcp-distributed-server") return createNodeSession(given);
  return new ClientSession({
    path: address.path,
    device: address.deviceName ?? from,
    socket,
    gateway: { ask: (message) => askOnce(given.answer, message) },
    clock: core.clock,
    log: core.log,
    ...(replay === undefined ? {} : { replay }),
  });
}

function createNodeSession({ core, connection, answer, socket }: VcpConnection): VcpSession {
  const { tenant } = connection;
  let handlers: LinkHandlers | undefined;
  const session = new VcpNodeSession({
    socket,
    url: core.publicUrl,
    egress: core.egress,
    log: core.log,
    runner: core.plugins ?? createProcessPluginRunner({ path: "", log: core.log }),
    directories: async () => {
      const row = await core.repos.tenants.get(tenant);
      if (row === undefined) return [];
      const { settings } = await core.configs.get(tenant, row.configVersion);
      return settings.vcp_node_directories;
    },
    onProblem: (content, serverId) =>
      logSystemEvent(core, tenant, { event: "node.problem", status: "error", content, serverId }),
    createLink: (given) => {
      handlers = given;
      return createLocalLink(core, tenant, answer);
    },
  });
  return {
    open: () => session.open(),
    receive: (text) => session.receive(text),
    end: () => session.end(),
    hear(frame) {
      const event = readEvent(frame);
      if (event === undefined) session.hear(frame);
      else handlers?.onEvent(event);
    },
  };
}

/** A link that leads through the hub of this process. */
function createLocalLink(core: CoreDeps, tenant: string, answer: Answer): NodeLink {
  const closed = Promise.withResolvers<void>();
  let isClosed = false;
  const askNow = async <T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T> =>
    read(await withInput(core, tenant, await askOnce(answer, message)));
  return {
    run: () => closed.promise,
    close() {
      isClosed = true;
      closed.resolve();
    },
    askNow,
    async ask(message, read, unwanted) {
      while (!isClosed && unwanted?.aborted !== true) {
        try {
          return await askNow(message, read);
        } catch (thrown) {
          if (!(thrown instanceof AnsweredError && thrown.isPassing)) throw thrown;
        }
        await sleep(againMs);
      }
      return undefined;
    },
    async store(run, bytes, mediaType) {
      await core.blobs.put(resultKey(tenant, run), bytes, { mediaType, ifAbsent: true });
    },
  };
}

/** Large arguments lie in the store, which is at hand here. */
async function withInput(core: CoreDeps, tenant: string, answer: JsonObject): Promise<JsonObject> {
  const { type, run, input_url: url } = answer;
  if (type !== "node.accepted" || typeof run !== "string" || url === undefined) return answer;
  const blob = await core.blobs.get(inputKey(tenant, run));
  const input = blob === undefined ? undefined : parseJson(Buffer.from(await readAll(blob.body)).toString("utf8"));
  if (!isJsonObject(input)) throw new GatewayError("not_found", `The arguments of run '${run}' are gone.`);
  return { type, run, input };
}

async function askOnce(answer: Answer, message: JsonObject): Promise<JsonObject> {
  const parsed = parseJson(await answer(JSON.stringify(message)));
  return isJsonObject(parsed) ? parsed : {};
}
