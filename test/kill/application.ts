/**
 * An application as the conventions ask it to be: it sends the same request with the same key again
 * until it has an answer, goes to another instance when one is gone, and heeds `Retry-After`.
 */
import type { Client, Json, Reply } from "../support/gateway-client.ts";
import { eventually, pause } from "./instance.ts";
import { endStates } from "./rows.ts";

const patienceMs = 40_000;

export interface Application {
  /** Repeats until there is a final answer. `isWhole`: is the body all that was to come? */
  send(
    method: string,
    path: string,
    request: {
      readonly body?: unknown;
      readonly headers?: (attempt: number) => Readonly<Record<string, string>>;
      readonly isWhole?: (reply: Reply) => boolean;
    },
  ): Promise<Reply>;
  /** Speaks to the next instance from now on, once that is there. */
  goOn(): Promise<void>;
  /** The call once it has ended. */
  follow(callId: string): Promise<Json>;
}

/** @param next where to go when the instance that was asked is gone */
export function createApplication(first: Client, next: () => Promise<Client>): Application {
  let client = first;
  const application: Application = {
    async send(method, path, { body, headers, isWhole = () => true }) {
      const until = performance.now() + patienceMs;
      for (let attempt = 0; ; attempt += 1) {
        const asked = client;
        const options = { headers: headers?.(attempt) ?? {}, signal: AbortSignal.timeout(patienceMs) };
        const reply = await asked.send(method, path, body, options).catch(() => undefined);
        // What a gateway says in the place of an instance that is gone is no answer of ours, and thrown as such.
        const isGone = reply === undefined || !isWhole(reply);
        if (!isGone && !isPassing(reply)) return reply;
        if (performance.now() > until) {
          throw new Error(
            `No final answer to ${method} ${path}: ${reply?.status ?? "no connection"} ${reply?.text ?? ""}`,
          );
        }
        if (isGone) {
          await pause(20);
          client = await next();
        } else await pause(Number(reply.headers.get("retry-after") ?? 0.1) * 1_000);
      }
    },
    async goOn() {
      client = await next();
    },
    follow: (callId) =>
      eventually(`The end of call ${callId}`, patienceMs, async () => {
        const { status, json, text } = await application.send("get", `/v1/calls/${callId}`, {});
        if (status !== 200) throw new Error(`Call ${callId} is not there: ${status} ${text}`);
        return endStates.includes(json.state) ? json : undefined;
      }),
  };
  return application;
}

function isPassing({ json, headers }: Reply): boolean {
  return json?.error?.retryable === true && headers.get("x-should-retry") !== "false";
}
