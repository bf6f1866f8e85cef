/** A load balancer before several processes: each request goes to the next one, whoever sent it. */
import { Agent, createServer, request as send, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";

export interface Balancer {
  readonly url: string;
  /** Base URLs to go to in turn; changed when processes come and go. */
  targets: readonly string[];
  /** Requests that each target has got. */
  readonly counts: ReadonlyMap<string, number>;
  close(): Promise<void>;
}

export async function startBalancer(): Promise<Balancer> {
  const agent = new Agent({ keepAlive: true });
  const counts = new Map<string, number>();
  let turn = 0;
  const server = createServer((request, response) => {
    const target = balancer.targets[turn++ % balancer.targets.length];
    if (target === undefined) {
      response.writeHead(503).end();
      return;
    }
    counts.set(target, (counts.get(target) ?? 0) + 1);
    forward(agent, target, request, response);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const balancer: Balancer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    targets: [],
    counts,
    async close() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
      agent.destroy();
    },
  };
  return balancer;
}

function forward(agent: Agent, target: string, request: IncomingMessage, response: ServerResponse): void {
  const onward = send(
    new URL(request.url ?? "/", target),
    { method: request.method, headers: request.headers, agent },
    (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      response.flushHeaders();
      pipeline(answer, response, () => undefined);
    },
  );
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
}
