/** Counts who comes by, by name: behind their walls, processes can say that they ran only over the network. */
import { once } from "node:events";
import { createServer } from "node:http";

export interface Hits {
  urlOf(name: string): string;
  of(name: string): number;
  close(): Promise<void>;
}

export async function startHits(): Promise<Hits> {
  const counts = new Map<string, number>();
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    counts.set(path, (counts.get(path) ?? 0) + 1);
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const origin = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  return {
    urlOf: (name) => `${origin}/${name}`,
    of: (name) => counts.get(`/${name}`) ?? 0,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
