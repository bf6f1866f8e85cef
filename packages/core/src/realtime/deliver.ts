/**
 * Sends events to the connections that no process holds, those of AWS's WebSocket API: whichever process
 * comes by claims what is due. At least once: a process that dies in between leaves its claim to the next one.
 */
import type { CoreDeps } from "../core-deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { Push, RemotePush } from "../ports/push.ts";
import { namesFor } from "./audience.ts";
import { endedEvent, type ClaimedConnection, type ClaimedEvent } from "./connection.ts";
import { toFrame } from "./frames.ts";

const claimLimit = 100;
/** Longer than sending what was claimed takes. */
const leaseMs = 15_000;
/** Claims made in one go, so that a function comes to its end. */
const mostClaims = 10;

type DeliverDeps = Pick<CoreDeps, "repos" | "log">;

/** @returns how many events were claimed */
export async function deliverEvents(deps: DeliverDeps, push: RemotePush): Promise<number> {
  let events = 0;
  for (let claims = 0; claims < mostClaims; claims += 1) {
    const claimed = await deps.repos.connections.claim({ limit: claimLimit, leaseMs });
    events += claimed.length;
    await tellAll(deps, push, claimed);
    if (claimed.length < claimLimit) break;
  }
  return events;
}

async function tellAll(deps: DeliverDeps, push: RemotePush, claimed: readonly ClaimedEvent[]): Promise<void> {
  const untold = new Set<ClaimedEvent>();
  const isEnd = ({ event }: ClaimedEvent): boolean => event.type === endedEvent;
  const listeners = listenersOf(claimed.filter((each) => !isEnd(each)));
  await Promise.all([
    ...claimed.filter(isEnd).map(async (each) => {
      if (!(await end(deps, push, each))) untold.add(each);
    }),
    ...[...listeners].map(async ([, { connection, due }]) => {
      // One after the other, so that each connection gets them in order.
      for (const [at, { frame }] of due.entries()) {
        const sent = await send(deps, push, { connection, frame });
        // Whom it does not know yet had not connected when this happened.
        if (sent === "sent" || (sent === "gone" && connection.isConnecting)) continue;
        if (sent === "gone") return deps.repos.connections.remove(connection.tenant, connection.id);
        for (const rest of due.slice(at)) untold.add(rest.claimed);
        return undefined;
      }
      return undefined;
    }),
  ]);
  const told = claimed.filter((each) => !untold.has(each));
  const byTenant = Map.groupBy(told, ({ event }) => event.tenant);
  await Promise.all(
    [...byTenant].map(([tenant, events]) =>
      deps.repos.connections.settle(
        tenant,
        events.map(({ event, attempt }) => ({ seq: event.seq, attempt })),
      ),
    ),
  );
}

interface Listener {
  readonly connection: ClaimedConnection;
  readonly due: { readonly claimed: ClaimedEvent; readonly frame: string }[];
}

function listenersOf(claimed: readonly ClaimedEvent[]): ReadonlyMap<string, Listener> {
  const listeners = new Map<string, Listener>();
  for (const each of claimed) {
    for (const connection of each.connections) {
      const names = namesFor(connection, each.event);
      if (names === undefined) continue;
      const listener = listeners.get(connection.id) ?? { connection, due: [] };
      listener.due.push({ claimed: each, frame: toFrame(each.event, names) });
      listeners.set(connection.id, listener);
    }
  }
  return listeners;
}

/** Unless it counts again by now. @returns false where that is to be tried again */
async function end(
  { repos, log }: DeliverDeps,
  push: RemotePush,
  { event, connections }: ClaimedEvent,
): Promise<boolean> {
  const { tenant, audience } = event;
  const id = "value" in audience ? audience.value : "";
  if (connections.some((alive) => alive.id === id)) return true;
  try {
    await push.end(id);
    await repos.connections.remove(tenant, id);
    return true;
  } catch (thrown) {
    log.log("warn", "a connection was not ended and will be", { tenant, code: toGatewayError(thrown).code });
    return false;
  }
}

async function send(
  { log }: DeliverDeps,
  push: Push,
  { connection, frame }: { readonly connection: ClaimedConnection; readonly frame: string },
): Promise<"sent" | "gone" | "failed"> {
  try {
    return await push.send(connection.id, frame);
  } catch (thrown) {
    const { tenant, caller } = connection;
    log.log("warn", "an event was not pushed and is tried again", {
      tenant,
      caller: caller.id,
      code: toGatewayError(thrown).code,
    });
    return "failed";
  }
}
