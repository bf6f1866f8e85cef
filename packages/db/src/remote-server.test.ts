import { createServer as createHttps } from "node:https";
import { createServer, type AddressInfo, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { localCertificate, localKey } from "../../../test/support/tls-pair.ts";
import { openDatabase } from "./client.ts";
import { RemoteServer } from "./remote-server.ts";

const open: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  await Promise.all(open.splice(0).map((each) => each.close()));
});

interface Front {
  readonly url: URL;
  connections(): number;
  /** Those that went on with the TLS session of an earlier one. */
  resumed(): number;
}

/** Before a server that takes 20 ms for each answer. @param isTaken by its number; the others never come beyond the socket */
async function startFront(isTaken: (connection: number) => boolean, answer = "ok"): Promise<Front> {
  const server = createHttps({ cert: localCertificate, key: localKey }, (request, response) => {
    request.resume().on("end", () => void sleep(20).then(() => response.end(answer)));
  });
  let resumed = 0;
  server.on("secureConnection", (socket) => {
    if (socket.isSessionReused()) resumed += 1;
  });
  let count = 0;
  const front: Server = createServer((socket) => {
    count += 1;
    socket.on("error", () => undefined);
    if (isTaken(count)) server.emit("connection", socket);
    else open.push({ close: () => Promise.resolve(socket.destroy()) });
  });
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
  open.push({ close: () => Promise.resolve(front.close()) }, { close: () => Promise.resolve(server.close()) });
  const { port } = front.address() as AddressInfo;
  return { url: new URL(`https://localhost:${port}`), connections: () => count, resumed: () => resumed };
}

/** Its certificate is known to nobody. */
function trustAnybody(): void {
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
}

function connectTo({ url }: Front, connections: number): RemoteServer {
  trustAnybody();
  const server = new RemoteServer({ url, authToken: undefined, connections, connectTimeoutMs: 10_000 });
  open.push(server);
  return server;
}

const fates = async (trips: readonly Promise<string>[]): Promise<readonly string[]> =>
  (await Promise.allSettled(trips)).map(({ status }) => status);

describe("connections to a libSQL server", () => {
  test("one whose making hangs loses its own request and nobody else's", async () => {
    const front = await startFront((connection) => connection !== 2);
    const server = connectTo(front, 8);
    const ask = (timeoutMs = 300): Promise<string> => server.post("/x", "{}", timeoutMs);
    await ask(5_000);
    expect((await fates([ask(5_000), ask()])).toSorted()).toEqual(["fulfilled", "rejected"]);
    for (let alone = 0; alone < 3; alone += 1) expect(await ask(5_000)).toBe("ok");
    expect(front.connections()).toBe(2);
  });

  test("whoever waits for one has another where it hangs, and is passed over once it has given up", async () => {
    const front = await startFront((connection) => connection > 1);
    const server = connectTo(front, 1);
    const hanging = server.post("/x", "{}", 400);
    const impatient = server.post("/x", "{}", 100);
    const patient = server.post("/x", "{}", 5_000);
    expect(await fates([hanging, impatient, patient])).toEqual(["rejected", "rejected", "fulfilled"]);
    expect(front.connections()).toBe(2);
  });

  test("one whose making hangs leaves its batch the time for another", async () => {
    const step = { cols: [], rows: [], affected_row_count: 1 };
    const result = { step_results: [step, step, step], step_errors: [] };
    const front = await startFront(
      (connection) => connection > 1,
      JSON.stringify({ results: [{ response: { result } }] }),
    );
    trustAnybody();
    const database = await openDatabase({ url: front.url.href, budgetMs: 1_500 });
    open.push(database);
    expect(await database.batch([{ sql: "UPDATE c SET n = n + 1", args: [] }])).toEqual([{ rows: [], changes: 1 }]);
    expect(front.connections()).toBe(2);
  });

  test("one that rested while the machine stood still carries nothing any more, and the next goes on with its TLS session", async () => {
    const front = await startFront(() => true);
    const server = connectTo(front, 8);
    await server.post("/x", "{}", 5_000);
    const [now, stoodStill] = [Date.now, 60_000];
    vi.spyOn(Date, "now").mockImplementation(() => now() + stoodStill);
    await server.post("/x", "{}", 5_000);
    expect([front.connections(), front.resumed()]).toEqual([2, 1]);
  });

  test("ends with it, whoever waits for one", async () => {
    const server = connectTo(await startFront(() => false), 1);
    const trips = [server.post("/x", "{}", 5_000), server.post("/x", "{}", 5_000)];
    await server.close();
    await expect(Promise.all(trips)).rejects.toMatchObject({ name: "RemoteLoss", sent: false });
    expect(await fates(trips)).toEqual(["rejected", "rejected"]);
  });
});
