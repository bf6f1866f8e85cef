import { describe, expect, test, vi } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallContext } from "../context.ts";
import type { StoredCredential } from "../secrets/credential.ts";
import { HeldConnections, type Held } from "./held-connections.ts";
import type { ToolService } from "./service.ts";

/** A back end that counts what is open at it. */
class BackEnd {
  opened = 0;
  readonly open = new Set<number>();
  isDown = false;
  readonly alive = new Map<number, boolean>();

  async connect(): Promise<Held<number>> {
    await Promise.resolve();
    if (this.isDown) throw new Error("nobody there");
    const id = (this.opened += 1);
    this.open.add(id);
    this.alive.set(id, true);
    return {
      connection: id,
      isAlive: () => this.alive.get(id) === true,
      close: () => {
        if (!this.open.delete(id)) throw new Error("closed twice");
        return Promise.resolve();
      },
    };
  }
}

const log = {
  lines: [] as string[],
  log(_level: string, message: string): void {
    this.lines.push(message);
  },
};
const pool = (options = {}): HeldConnections => new HeldConnections(log, options);

function service(change: Partial<ToolService> = {}): ToolService {
  return {
    id: "svc_1",
    scheme: "mcp",
    serviceId: "maps",
    displayName: null,
    description: null,
    config: { auth_config: { token: { credential: "TOKEN" } } },
    enabled: true,
    version: 1,
    discovered: null,
    createdAt: 0,
    updatedAt: 0,
    ...change,
  };
}

function contextWith(credentials: readonly StoredCredential[], userId?: string, tenant = "ten_a"): CallContext {
  const context = callContext({ tenant, caller: userId === undefined ? {} : { userId } });
  return { ...context, config: { ...context.config, credentials } };
}

const token = (version: number): StoredCredential => ({ name: "TOKEN", level: "tenant", version, sealed: "" });
const own = (userId: string): StoredCredential => ({ name: "TOKEN", level: "user", userId, version: 1, sealed: "" });

function use(
  connections: HeldConnections,
  backEnd: BackEnd,
  given: Partial<Parameters<HeldConnections["use"]>[0]> = {},
) {
  const options = { service: service(), context: contextWith([]), ...given };
  return connections.use({ ...options, open: () => backEnd.connect() }, (connection) => Promise.resolve(connection));
}

const settled = (): Promise<void> => new Promise((done) => setTimeout(done, 0));

describe(`held connections ${verifies("MCP-1", "MCP-4", "CFG-3")}`, () => {
  test("are opened once and used by all, at the same time too", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    const used = await Promise.all([use(connections, backEnd), use(connections, backEnd), use(connections, backEnd)]);
    expect([...used, await use(connections, backEnd)]).toEqual([1, 1, 1, 1]);
    expect(connections.size).toBe(1);
    await connections.close();
    expect(backEnd.open.size).toBe(0);
  });

  test("made with a request's own credentials end with it", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    const runtimeConfig = { plugins: [], credentials: { TOKEN: "brought along" } };
    const context = { ...contextWith([token(1)]), runtimeConfig };
    expect([await use(connections, backEnd, { context }), await use(connections, backEnd, { context })]).toEqual([
      1, 2,
    ]);
    expect([connections.size, backEnd.open.size]).toEqual([0, 0]);
    expect(
      await use(connections, backEnd, { context: { ...context, runtimeConfig: { plugins: [], credentials: {} } } }),
    ).toBe(3);
    expect(connections.size).toBe(1);
    await connections.close();
  });

  test("belong to one tenant, one service, and one part of it", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    await use(connections, backEnd);
    await use(connections, backEnd, { context: contextWith([], undefined, "ten_b") });
    await use(connections, backEnd, { service: service({ id: "svc_2" }) });
    await use(connections, backEnd, { part: "session" });
    expect(backEnd.opened).toBe(4);
    await connections.close();
  });

  test("belong to the credentials they were opened with", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    const credentials = [token(1), own("ann")];
    const used = [
      await use(connections, backEnd, { context: contextWith(credentials, "ann") }),
      await use(connections, backEnd, { context: contextWith(credentials, "ben") }),
      await use(connections, backEnd, { context: contextWith(credentials) }),
      await use(connections, backEnd, { context: contextWith([token(2)]) }),
    ];
    expect(used).toEqual([1, 2, 2, 3]);
    await connections.close();
  });

  test("of an old version go when the new one is used, those in use when their calls have ended", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    let finish: (value: string) => void = () => undefined;
    const running = connections.use(
      { service: service(), context: contextWith([]), open: () => backEnd.connect() },
      () => new Promise<string>((done) => (finish = done)),
    );
    await settled();
    expect(await use(connections, backEnd, { service: service({ version: 2 }) })).toBe(2);
    expect([...backEnd.open]).toEqual([1, 2]);
    finish("done");
    expect(await running).toBe("done");
    await settled();
    expect([...backEnd.open]).toEqual([2]);
    // A call with the snapshot of before gets its own, which is not kept.
    expect(await use(connections, backEnd)).toBe(3);
    await settled();
    expect([...backEnd.open]).toEqual([2]);
    await connections.close();
  });

  test("that have died are opened again, once", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    await use(connections, backEnd);
    backEnd.alive.set(1, false);
    expect(await Promise.all([use(connections, backEnd), use(connections, backEnd)])).toEqual([2, 2]);
    await settled();
    expect([...backEnd.open]).toEqual([2]);
    await connections.close();
  });

  test("that cannot be opened fail all who wait, and are tried again by the next", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    backEnd.isDown = true;
    const results = await Promise.allSettled([use(connections, backEnd), use(connections, backEnd)]);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(connections.size).toBe(0);
    backEnd.isDown = false;
    expect(await use(connections, backEnd)).toBe(1);
    await connections.close();
  });

  test("are closed when idle, the longest unused when there are too many, and all at the end", async () => {
    const [connections, backEnd] = [pool({ idleMs: 1 }), new BackEnd()];
    await use(connections, backEnd);
    await expect.poll(() => backEnd.open.size).toBe(0);
    expect(connections.size).toBe(0);
    const few = pool({ most: 2 });
    for (const id of ["a", "b", "c"]) await use(few, backEnd, { service: service({ id }) });
    await settled();
    expect([...backEnd.open]).toEqual([3, 4]);
    await few.close();
    expect(backEnd.open.size).toBe(0);
    await expect(use(few, backEnd)).rejects.toMatchObject({ code: "shutting_down" });
  });

  test("that rested while the process stood still, its timers too, are not used again", async () => {
    const [connections, backEnd] = [pool({ idleMs: 60_000 }), new BackEnd()];
    await use(connections, backEnd);
    const now = vi.spyOn(Date, "now");
    now.mockReturnValue(Date.now() + 59_000);
    expect(await use(connections, backEnd)).toBe(1);
    now.mockReturnValue(Date.now() + 61_000);
    expect(await use(connections, backEnd)).toBe(2);
    now.mockRestore();
    await settled();
    expect([...backEnd.open]).toEqual([2]);
    await connections.close();
  });

  test("being opened when the process ends are closed, too", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    const using = use(connections, backEnd);
    await connections.close();
    await using.catch(() => undefined);
    await settled();
    expect(backEnd.open.size).toBe(0);
    expect(log.lines).toEqual([]);
  });

  test("of a service that is gone are let go", async () => {
    const [connections, backEnd] = [pool(), new BackEnd()];
    await use(connections, backEnd);
    connections.retire("ten_b", { id: "svc_1" });
    await settled();
    expect(backEnd.open.size).toBe(1);
    connections.retire("ten_a", { id: "svc_1" });
    await settled();
    expect(backEnd.open.size).toBe(0);
  });
});
