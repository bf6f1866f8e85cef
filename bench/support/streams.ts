/** Event streams read by a load generator: how long each chunk was under way, and whether all came. */
import { HttpConnection, requestBytes, type Target } from "./http-connection.ts";
import { ask } from "./load.ts";
import { chatBody } from "./requests.ts";

export interface Pace {
  readonly chunks: number;
  readonly perSecond: number;
}

export interface ReadStream {
  /** Milliseconds from the request to the first chunk with content. */
  readonly firstChunkMs: number;
  /** Milliseconds from the back end's write to here, of each chunk. */
  readonly delaysMs: readonly number[];
  readonly isComplete: boolean;
}

export function streamBody({ chunks, perSecond }: Pace): string {
  return chatBody(`stream/${chunks}/${perSecond}`, { stream: true });
}

/** The back end writes the time at which it sends a chunk into it; all processes here share that clock. */
export async function readStream(connection: HttpConnection, target: Target, pace: Pace): Promise<ReadStream> {
  const request = requestBytes(target, streamBody(pace));
  const delaysMs: number[] = [];
  let rest = "";
  let firstChunkMs = Number.NaN;
  const started = performance.now();
  await ask(connection, request, (part) => {
    const now = Number(process.hrtime.bigint() / 1_000n);
    if (delaysMs.length === 0) firstChunkMs = performance.now() - started;
    const events = (rest + part.toString("latin1")).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      if (event === "data: [DONE]") rest = event;
      const sent = /@(\d+)@/.exec(event)?.[1];
      if (sent !== undefined) delaysMs.push((now - Number(sent)) / 1_000);
    }
  });
  return { firstChunkMs, delaysMs, isComplete: rest === "data: [DONE]" && delaysMs.length === pace.chunks };
}

/** Streams side by side, each on a connection of its own. */
export async function readStreams(target: Target, count: number, pace: Pace): Promise<readonly ReadStream[]> {
  const connections = await Promise.all(Array.from({ length: count }, () => HttpConnection.open(target.url)));
  const streams = await Promise.all(connections.map((connection) => readStream(connection, target, pace)));
  for (const connection of connections) connection.close();
  return streams;
}
