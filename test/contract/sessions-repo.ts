/** What every session repository promises, with two instances at one database (CHAT-8). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import { mostWorkspaceFiles, type Session, type SessionRepo, type WorkspaceFile } from "@toolyard/core/ports/sessions";
import type { Tenant } from "@toolyard/core/ports/tenants";
import type { NewSchedule } from "@toolyard/core/ports/schedules";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

const day = 86_400_000;

const weekly = {
  name: null,
  taskId: null,
  given: { field: "rate", value: "7 days" },
  timing: { kind: "rate", every_ms: 7 * day, first: 7 * day },
  timeZone: "UTC",
  startAt: null,
  endAt: null,
  misfire: "once",
  target: "api://crm/ping",
  task: "sealed",
  caller: { kind: "key", id: "key_1", role: "member", scopes: ["tools"], tools: null },
  paused: false,
  nextAt: 4_000_000_000_000,
} as const satisfies Partial<NewSchedule>;

export function describeSessionRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`sessions: ${name} ${verifies("CHAT-8")}`, () => {
    let instances: TwoInstances;
    let repos: readonly [SessionRepo, SessionRepo];
    let sessions: SessionRepo;
    beforeAll(async () => {
      instances = await make();
      repos = [createRepos(instances.first).sessions, createRepos(instances.second).sessions];
      [sessions] = repos;
    });
    afterAll(() => instances.close());

    const newTenant = async (settings: Tenant["settings"] = {}): Promise<string> => {
      const id = newId("tenant");
      await createRepos(instances.second).tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings });
      return id;
    };
    const newSession = async (tenant: string): Promise<string> =>
      (await sessions.touch(tenant, newId("session"), "key_1", day)).id;
    const turn = (index: number): SessionRepo => repos[index % 2 === 0 ? 0 : 1];
    const file = (path: string, bytes: number, blobKey: string = randomUUID()): Omit<WorkspaceFile, "updatedAt"> => ({
      path,
      bytes,
      blobKey,
      mediaType: "text/plain",
    });
    const idle = (id: string, ms: number): Promise<unknown> =>
      instances.run("UPDATE sessions SET last_used_at = last_used_at - ? WHERE id = ?", ms, id);
    const used = async (tenant: string, id: string): Promise<number | undefined> =>
      (await sessions.get(tenant, id))?.bytes;

    describe("sessions", () => {
      test("are made by their first use and kept by every other", async () => {
        const tenant = await newTenant();
        const id = "chosen-by_the.client";
        const made = await sessions.touch(tenant, id, "key_1", day);
        expect(made).toMatchObject({ id, callerId: "key_1", bytes: 0, expired: false });
        expect(made.lastUsedAt).toBe(made.createdAt);
        expect(Math.abs(made.createdAt - Date.now())).toBeLessThan(60_000);
        await idle(id, 5_000);
        const again = await repos[1].touch(tenant, id, "key_2", day);
        expect(again).toMatchObject({ callerId: "key_1", createdAt: made.createdAt });
        expect(again.lastUsedAt).toBeGreaterThanOrEqual(made.lastUsedAt);
        expect(await sessions.get(tenant, id)).toEqual(again);
        expect(await sessions.get(tenant, "none")).toBeUndefined();
      });

      test("are made once by ten first uses at once", async () => {
        const tenant = await newTenant();
        const id = newId("session");
        const made = await Promise.all(
          Array.from({ length: 10 }, (_none, index) => turn(index).touch(tenant, id, `key_${index}`, day)),
        );
        expect(new Set(made.map(({ callerId }) => callerId)).size).toBe(1);
      });

      test(`of another tenant do not exist, and cannot be made again ${verifies("CHAT-20")}`, async () => {
        const [owner, intruder] = [await newTenant(), await newTenant()];
        const id = await newSession(owner);
        await sessions.putFile(owner, id, file("a", 1), 10);
        const before = await sessions.get(owner, id);
        await expect(sessions.touch(intruder, id, "key_x", day)).rejects.toMatchObject({ code: "session_not_found" });
        await expect(sessions.putFile(intruder, id, file("b", 1), 10)).rejects.toMatchObject({
          code: "session_not_found",
        });
        expect(await sessions.get(intruder, id)).toBeUndefined();
        expect(await sessions.listFiles(intruder, id, "")).toEqual([]);
        expect((await sessions.pageFiles(intruder, id, { limit: 10, order: "asc" })).data).toEqual([]);
        expect(await sessions.getFile(intruder, id, "a")).toBeUndefined();
        expect(await sessions.deleteFile(intruder, id, "a")).toBeUndefined();
        expect(await sessions.delete(intruder, id)).toBeUndefined();
        expect((await sessions.list(intruder, { limit: 10, order: "asc" })).data).toEqual([]);
        expect(await sessions.get(owner, id)).toEqual(before);
        expect(await sessions.listFiles(owner, id, "")).toHaveLength(1);
      });

      test("are listed by age, page by page, of all callers or of one", async () => {
        const tenant = await newTenant();
        const made: Session[] = [];
        for (let index = 0; index < 5; index += 1) {
          made.push(await sessions.touch(tenant, newId("session"), `key_${index % 2}`, day));
        }
        const ids = made.map(({ id }) => id);
        const first = await sessions.list(tenant, { limit: 3, order: "asc" });
        expect(first).toMatchObject({ hasMore: true });
        expect(first.data.map(({ id }) => id)).toEqual(ids.slice(0, 3));
        const rest = await sessions.list(tenant, { limit: 3, order: "asc", after: ids[2] ?? "" });
        expect(rest).toMatchObject({ hasMore: false });
        expect(rest.data.map(({ id }) => id)).toEqual(ids.slice(3));
        const newest = await sessions.list(tenant, { limit: 2, order: "desc" });
        expect(newest.data.map(({ id }) => id)).toEqual(ids.toReversed().slice(0, 2));
        const mine = await sessions.list(tenant, { limit: 10, order: "asc" }, "key_1");
        expect(mine.data.map(({ id }) => id)).toEqual([ids[1], ids[3]]);
        await sessions.delete(tenant, ids[2] ?? "");
        const cut = sessions.list(tenant, { limit: 3, order: "asc", after: ids[2] ?? "" });
        await expect(cut).rejects.toMatchObject({ code: "invalid_request", details: { param: "after" } });
      });
    });

    describe("expiry", () => {
      test("comes with the tenant's idle time, and the id does not start afresh", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        const id = await newSession(tenant);
        await idle(id, 59_000);
        expect(await sessions.get(tenant, id)).toMatchObject({ expired: false });
        await idle(id, 1_001);
        expect(await sessions.get(tenant, id)).toMatchObject({ expired: true });
        const touched = await sessions.touch(tenant, id, "key_1", 60_000);
        expect(touched.expired).toBe(true);
        await expect(sessions.putFile(tenant, id, file("a", 1), 10)).rejects.toMatchObject({ code: "session_expired" });
        expect((await sessions.touch(tenant, id, "key_1", 60_000)).expired).toBe(true);
      });

      test("leaves alone what a schedule delivers to, for as long as that may still fire", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        const [kept, other] = [await newSession(tenant), await newSession(tenant)];
        const { schedules } = createRepos(instances.first);
        const { id } = await schedules.create(tenant, {
          ...weekly,
          id: newId("schedule"),
          deliver: { session_id: kept },
        });
        const states = async (): Promise<readonly (boolean | undefined)[]> =>
          Promise.all([kept, other].map(async (session) => (await repos[1].get(tenant, session))?.expired));
        await idle(kept, 60_001);
        await idle(other, 60_001);
        expect(await states()).toEqual([false, true]);
        const take = async (): Promise<readonly string[]> =>
          (await sessions.takeExpired(1_000)).filter((one) => one.tenant === tenant).map((taken) => taken.id);
        expect(await take()).toEqual([other]);
        await sessions.putFile(tenant, kept, file("a", 1), 10);
        await idle(kept, 60_001);
        expect(await sessions.touch(tenant, kept, "key_1", 60_000)).toMatchObject({ expired: false });
        await idle(kept, 60_001);
        await schedules.pause(tenant, id);
        expect(await states()).toEqual([false, true]);
        await schedules.delete(tenant, id);
        expect(await states()).toEqual([true, true]);
        expect(await take()).toEqual([kept]);
      });

      test("gives each session to one of several instances, and to another where that one does not finish", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        const ids = [await newSession(tenant), await newSession(tenant), await newSession(tenant)];
        const live = await newSession(tenant);
        for (const id of ids) {
          await sessions.putFile(tenant, id, file("a", 1, `blob-${id}`), 10);
          await idle(id, 60_001);
        }
        const take = async (index: number): Promise<readonly string[]> =>
          (await turn(index).takeExpired(1_000)).filter((one) => one.tenant === tenant).map(({ id }) => id);
        const taken = await Promise.all(Array.from({ length: 6 }, (_none, index) => take(index)));
        expect(taken.flat().toSorted()).toEqual(ids.toSorted());
        expect(await take(0)).toEqual([]);
        const [cleared] = ids;
        expect(await sessions.delete(tenant, cleared ?? "")).toEqual([`blob-${cleared}`]);
        await instances.run("UPDATE sessions SET claimed_until = 1 WHERE tenant = ?", tenant);
        expect((await take(1)).toSorted()).toEqual(ids.filter((id) => id !== cleared).toSorted());
        expect(await sessions.get(tenant, live)).toMatchObject({ expired: false });
      });

      test("takes no more sessions at once than the limit says", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        for (let count = 0; count < 3; count += 1) await idle(await newSession(tenant), 60_001);
        await sessions.takeExpired(1_000);
        await instances.run("UPDATE sessions SET claimed_until = NULL WHERE tenant = ?", tenant);
        expect(await sessions.takeExpired(2)).toHaveLength(2);
      });

      test("is remembered when the files are gone; what was deleted while live is free again", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        const [expired, live] = [await newSession(tenant), await newSession(tenant)];
        await idle(expired, 60_001);
        await sessions.takeExpired(1_000);
        expect(await sessions.delete(tenant, expired)).toEqual([]);
        expect(await sessions.delete(tenant, expired)).toBeUndefined();
        expect(await sessions.touch(tenant, expired, "key_1", day)).toMatchObject({ expired: true });
        expect((await sessions.list(tenant, { limit: 10, order: "asc" })).data.map(({ id }) => id)).toEqual([live]);
        expect(await sessions.delete(tenant, live)).toEqual([]);
        expect(await sessions.get(tenant, live)).toBeUndefined();
        expect(await sessions.touch(tenant, live, "key_1", day)).toMatchObject({ expired: false });
      });

      test("is put off by a write, and cannot meet one half way", async () => {
        const tenant = await newTenant({ session_idle_ms: 60_000 });
        const id = await newSession(tenant);
        await idle(id, 59_000);
        await sessions.putFile(tenant, id, file("a", 1), 10);
        await idle(id, 59_000);
        await sessions.deleteFile(tenant, id, "a");
        await idle(id, 59_000);
        expect(await sessions.get(tenant, id)).toMatchObject({ expired: false });
      });
    });

    describe("workspace", () => {
      test("keeps, replaces and removes files, and names the blobs that are no longer needed", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        const put = (path: string, bytes: number, blobKey: string) =>
          sessions.putFile(tenant, id, file(path, bytes, blobKey), 100);
        expect(await put("notes/北京.txt", 30, "b1")).toEqual({ kind: "stored", replaced: undefined });
        expect(await put("notes/北京.txt", 40, "b2")).toEqual({ kind: "stored", replaced: "b1" });
        const stored = await sessions.getFile(tenant, id, "notes/北京.txt");
        expect(stored).toMatchObject(file("notes/北京.txt", 40, "b2"));
        expect(Math.abs((stored?.updatedAt ?? 0) - Date.now())).toBeLessThan(60_000);
        expect(await used(tenant, id)).toBe(40);
        expect(await sessions.deleteFile(tenant, id, "notes/北京.txt")).toBe("b2");
        expect(await sessions.deleteFile(tenant, id, "notes/北京.txt")).toBeUndefined();
        expect(await used(tenant, id)).toBe(0);
        await put("a", 1, "b3");
        await put("b", 1, "b4");
        expect((await sessions.delete(tenant, id))?.toSorted()).toEqual(["b3", "b4"]);
        expect(await sessions.listFiles(tenant, id, "")).toEqual([]);
      });

      test("is never filled beyond its limit, and says how full it is", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        const put = (path: string, bytes: number) => sessions.putFile(tenant, id, file(path, bytes), 100);
        expect(await put("a", 100)).toMatchObject({ kind: "stored" });
        expect(await put("b", 1)).toEqual({ kind: "full", bytes: 100, files: 1 });
        expect(await put("a", 101)).toEqual({ kind: "full", bytes: 100, files: 1 });
        expect(await put("b", 0)).toMatchObject({ kind: "stored" });
        expect(await put("a", 60)).toMatchObject({ kind: "stored" });
        expect(await put("b", 40)).toMatchObject({ kind: "stored" });
        expect(await sessions.getFile(tenant, id, "a")).toMatchObject({ bytes: 60 });
      });

      test("loses the files whose blobs are gone, and none that was written since", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        for (const name of ["a", "b", "c"]) await sessions.putFile(tenant, id, file(name, 1, `blob-${name}`), 100);
        await sessions.putFile(tenant, id, file("b", 1, "newer"), 100);
        await repos[1].deleteFiles(tenant, id, ["blob-a", "blob-b"]);
        await repos[1].deleteFiles(await newTenant(), id, ["blob-c"]);
        expect((await sessions.listFiles(tenant, id, "")).map(({ path }) => path)).toEqual(["b", "c"]);
      });

      test("has no place for more files than may be, whatever they hold", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        await instances.run(
          `INSERT INTO workspace_files (tenant, session_id, path, bytes, media_type, blob_key, updated_at)
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
            SELECT ?, ?, 'f' || n, 0, 'text/plain', 'b' || n, 0 FROM numbers`,
          mostWorkspaceFiles - 1,
          tenant,
          id,
        );
        const put = (path: string) => sessions.putFile(tenant, id, file(path, 0), 100);
        expect(await put("last")).toMatchObject({ kind: "stored" });
        expect(await put("more")).toEqual({ kind: "full", bytes: 0, files: mostWorkspaceFiles });
        expect(await put("last")).toMatchObject({ kind: "stored" });
      });

      test("two instances that write at once cannot fill it twice", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        const results = await Promise.all(
          Array.from({ length: 40 }, (_none, index) => turn(index).putFile(tenant, id, file(`f${index}`, 9), 100)),
        );
        expect(results.filter(({ kind }) => kind === "stored")).toHaveLength(11);
        expect(await used(tenant, id)).toBe(99);
      });

      test("writers of one file at once leave one blob, and each other is named for deletion once", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        const keys = Array.from({ length: 12 }, (_none, index) => `blob-${index}`);
        const results = await Promise.all(
          keys.map((key, index) => turn(index).putFile(tenant, id, file("same", 1, key), 10)),
        );
        const replaced = results.flatMap((result) => (result.kind === "stored" ? [result.replaced ?? ""] : []));
        const last = await sessions.getFile(tenant, id, "same");
        expect([...replaced, last?.blobKey ?? ""].toSorted()).toEqual(["", ...keys].toSorted());
      });

      test("a write whose reply was lost is done once, and still names what it replaced", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        await sessions.putFile(tenant, id, file("a", 5, "old"), 10);
        instances.proxy?.faults.push({ kind: "lost-after" });
        expect(await sessions.putFile(tenant, id, file("a", 6, "new"), 10)).toEqual({
          kind: "stored",
          replaced: "old",
        });
        expect(await sessions.putFile(tenant, id, file("a", 6, "newer"), 10)).toEqual({
          kind: "stored",
          replaced: "new",
        });
      });

      test("files are found by the beginning of their path, whatever characters it has", async () => {
        const tenant = await newTenant();
        const id = await newSession(tenant);
        const paths = ["a", "a%b/1", "a_/2", "ab", "b/🙂", "b/🙂x", "中/文"];
        for (const path of paths) await sessions.putFile(tenant, id, file(path, 0), 10);
        const under = async (prefix: string): Promise<readonly string[]> =>
          (await sessions.listFiles(tenant, id, prefix)).map(({ path }) => path);
        expect(await under("")).toEqual(paths);
        expect(await under("a")).toEqual(["a", "a%b/1", "a_/2", "ab"]);
        expect(await under("a%")).toEqual(["a%b/1"]);
        expect(await under("a_")).toEqual(["a_/2"]);
        expect(await under("b/🙂")).toEqual(["b/🙂", "b/🙂x"]);
        expect(await under("中/")).toEqual(["中/文"]);
        expect(await under("z")).toEqual([]);
        const first = await sessions.pageFiles(tenant, id, { limit: 4, order: "asc" });
        expect(first.hasMore).toBe(true);
        const next = await sessions.pageFiles(tenant, id, {
          limit: 4,
          order: "asc",
          after: first.data.at(-1)?.path ?? "",
        });
        expect(next.hasMore).toBe(false);
        expect([...first.data, ...next.data].map(({ path }) => path)).toEqual(paths);
        const last = await sessions.pageFiles(tenant, id, { limit: 2, order: "desc" });
        expect(last.data.map(({ path }) => path)).toEqual(paths.toReversed().slice(0, 2));
      });

      test("one session's files are none of another's", async () => {
        const tenant = await newTenant();
        const [one, two] = [await newSession(tenant), await newSession(tenant)];
        await sessions.putFile(tenant, one, file("a", 100), 100);
        expect(await sessions.putFile(tenant, two, file("a", 100), 100)).toEqual({
          kind: "stored",
          replaced: undefined,
        });
        await sessions.delete(tenant, one);
        expect(await sessions.listFiles(tenant, two, "")).toHaveLength(1);
      });
    });
  });
}
