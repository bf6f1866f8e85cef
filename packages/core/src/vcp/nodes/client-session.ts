/**
 * Clients of VCP that are no nodes: they watch, decide, or have a browser at hand (VCP-13). What they say goes on
 * as a message of `/ws`, what they hear are frames of VCP and nothing else.
 */
import { createHash } from "node:crypto";
import { isJsonObject, parseJson, type JsonObject } from "../../json.ts";
import type { Log } from "../../ports/log.ts";
import type { Clock } from "../../ports/clock.ts";
import { vcpLogClient, vcpPaths, type VcpPath } from "./client-types.ts";
import { framesOf, type VcpGateway, type VcpSession, type VcpSocket } from "./session.ts";

/** Frames that wait for the one before. */
const mostWaiting = 64;

/** Milliseconds. */
export interface ReplayTiming {
  /** A device has to stay for so long. */
  readonly afterMs: number;
  readonly betweenMs: number;
}

const defaultReplayTiming: ReplayTiming = { afterMs: 3_000, betweenMs: 80 };

export interface ClientSessionOptions {
  readonly path: VcpPath;
  /** By which it is known again; undefined: it is not. */
  readonly device: string | undefined;
  readonly socket: VcpSocket;
  readonly gateway: VcpGateway;
  readonly clock: Clock;
  readonly log: Log;
  readonly replay?: ReplayTiming;
}

interface PageRequest {
  readonly requestId: string;
  readonly sourceClientId: string;
}

export class ClientSession implements VcpSession {
  readonly #options: ClientSessionOptions;
  readonly #ended = new AbortController();
  #waiting = 0;
  /** A bridge opens a session again when it has reached its gateway again. */
  #isAcknowledged = false;
  #answered: Promise<void> = Promise.resolve();
  /** Who has sent this browser a command and wants to know what the page shows afterwards. */
  #forPage: readonly PageRequest[] = [];

  constructor(options: ClientSessionOptions) {
    this.#options = options;
  }

  async open(): Promise<void> {
    const { path, socket, gateway } = this.#options;
    const { clientType, acknowledges } = vcpPaths[path];
    const { device } = this.#options;
    // Before it is said that it is connected: from then on it misses nothing.
    if (clientType === vcpLogClient) {
      await gateway.ask({ type: "subscribe", id: "approvals", topic: "calls", events: ["call.approval_required"] });
      if (device !== undefined) await gateway.ask({ type: "subscribe", id: "device", topic: "vcp_log", device });
    }
    if (acknowledges && !this.#isAcknowledged) {
      this.#isAcknowledged = true;
      socket.send({ type: "connection_ack", message: `WebSocket connection successful for ${clientType}.` });
    }
    if (clientType === vcpLogClient && device !== undefined) void this.#replay();
  }

  receive(text: string): void {
    if (this.#waiting >= mostWaiting) {
      this.#options.socket.close(1008, "too many frames at once");
      return;
    }
    this.#waiting += 1;
    const asked = this.#forPage;
    this.#answered = this.#answered.then(async () => {
      // Read when its turn comes: many that come at once are not all held as objects, nor read in one go.
      const parsed = parseJson(text);
      const frame = isJsonObject(parsed) ? parsed : {};
      await this.#answer({ type: "vcp.frame", frame, ...this.#whoWaits(frame, asked) });
      this.#waiting -= 1;
    });
  }

  hear(frame: JsonObject): void {
    if (!isEvent(frame)) {
      this.#noteCommand(frame);
      this.#options.socket.send(this.#known(frame));
      return;
    }
    const { type, data } = frame;
    const id = isJsonObject(data) ? data["id"] : undefined;
    if (type === "call.approval_required" && typeof id === "string") {
      void this.#answer({ type: "vcp.approval", call_id: id });
    }
  }

  end(): Promise<void> {
    this.#ended.abort();
    return Promise.resolve();
  }

  /** Never throws. */
  async #answer(message: JsonObject): Promise<void> {
    const { socket } = this.#options;
    for (const frame of await this.#ask(message)) socket.send(this.#known(frame));
  }

  async #ask(message: JsonObject): Promise<JsonObject[]> {
    const { gateway, log } = this.#options;
    try {
      return framesOf(await gateway.ask(message));
    } catch (thrown) {
      const reason = thrown instanceof Error ? thrown.message : "unknown";
      log.log("warn", "a frame of a VCP client was not taken", { reason });
      return [];
    }
  }

  /** What the device has missed, once it has stayed for a while. */
  async #replay(): Promise<void> {
    const { clock, socket, replay: { afterMs, betweenMs } = defaultReplayTiming } = this.#options;
    const { signal } = this.#ended;
    try {
      await clock.sleep(afterMs, signal);
      for (const frame of await this.#ask({ type: "vcp.replay" })) {
        socket.send(this.#known(frame));
        await clock.sleep(betweenMs, signal);
      }
    } catch {
      // It has left; what is left of it waits for the next time.
    }
  }

  /** Every frame of a log has an id, by which clients know what they were told already. */
  #known(frame: JsonObject): JsonObject {
    if (this.#options.path !== "VCPlog" || frame["_vcpReplayId"] !== undefined) return frame;
    // The same whether it is told as it happens or again.
    const { _vcpReplay: _again, _vcpReplayOriginalAt: _at, ...told } = frame;
    const hash = createHash("sha256").update(JSON.stringify(told), "utf8").digest("hex");
    return { ...frame, _vcpReplayId: `vcplog-${hash.slice(0, 24)}` };
  }

  #noteCommand({ type, data }: JsonObject): void {
    if (this.#options.path !== "vcp-chrome-observer" || type !== "command" || !isJsonObject(data)) return;
    const { requestId, sourceClientId, wait_for_page_info: waits } = data;
    if (waits === true && typeof requestId === "string" && typeof sourceClientId === "string")
      this.#forPage = [...this.#forPage.slice(-99), { requestId, sourceClientId }];
  }

  /** @param asked before the frame came; what was asked since is about a later page */
  #whoWaits({ type }: JsonObject, asked: readonly PageRequest[]): JsonObject {
    if (type !== "pageInfoUpdate") return {};
    const waiting = this.#forPage.filter((each) => asked.includes(each));
    this.#forPage = this.#forPage.filter((each) => !asked.includes(each));
    return waiting.length === 0 ? {} : { waiting: waiting.map((each) => ({ ...each })) };
  }
}

/** Events of `/ws` have a number; frames of VCP have none. */
function isEvent({ id, seq }: JsonObject): boolean {
  return typeof seq === "number" && typeof id === "string" && id.startsWith("evt_");
}
