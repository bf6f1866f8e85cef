/** What every repository of uploads promises, with two instances at one database (CHAT-19). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { NewWorkspaceUpload } from "@toolyard/core/ports/sessions";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Tenant } from "@toolyard/core/ports/tenants";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

const day = 86_400_000;
const minute = 60_000;

/** Tenant and session. */
type Place = readonly [string, string];

export function describeUploadRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`uploads: ${name} ${verifies("CHAT-19")}`, () => {
    let instances: TwoInstances;
    let both: readonly [Repos, Repos];
    beforeAll(async () => {
      instances = await make();
      both = [createRepos(instances.first), createRepos(instances.second)];
    });
    afterAll(() => instances.close());

    const turn = (index: number): Repos => both[index % 2 === 0 ? 0 : 1];
    const newTenant = async (settings: Tenant["settings"] = {}): Promise<string> => {
      const id = newId("tenant");
      await both[1].tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings });
      return id;
    };
    const newSession = async (tenant: string): Promise<string> =>
      (await both[0].sessions.touch(tenant, newId("session"), "key_1", day)).id;
    const small = async (): Promise<Place> => {
      const tenant = await newTenant({ workspace_bytes: 2_000 });
      return [tenant, await newSession(tenant)];
    };
    const upload = (path: string, bytes: number): NewWorkspaceUpload => {
      const id = newId("upload");
      return { id, path, bytes, mediaType: "text/plain", blobKey: `blob-${id}` };
    };
    const announce = async ([tenant, session]: Place, path: string, bytes: number, index = 0): Promise<string> => {
      const wanted = upload(path, bytes);
      expect(await turn(index).uploads.open(tenant, session, wanted, minute)).toMatchObject({ kind: "open" });
      return wanted.id;
    };
    const write = ([tenant, session]: Place, path: string, bytes: number, blobKey: string = randomUUID()) =>
      both[0].sessions.putFile(tenant, session, { path, bytes, mediaType: "text/plain", blobKey }, 2_000);
    const complete = ([tenant, session]: Place, id: string, replace = false, index = 0) =>
      turn(index).uploads.complete(tenant, session, id, { replace });

    test("are announced, found, and become the file of their path on any instance", async () => {
      const [tenant, session] = await small();
      const wanted = upload("资料/二月.txt", 30);
      const opened = await both[0].uploads.open(tenant, session, wanted, minute);
      expect(opened).toMatchObject({ kind: "open", upload: { ...wanted, session, replaces: false, state: "open" } });
      expect(await both[1].uploads.get(tenant, session, wanted.id)).toEqual(opened.kind === "open" && opened.upload);
      const done = await complete([tenant, session], wanted.id, false, 1);
      expect(done).toMatchObject({
        kind: "stored",
        replaced: undefined,
        file: { path: wanted.path, bytes: 30, mediaType: "text/plain", blobKey: wanted.blobKey },
      });
      expect(await both[0].sessions.getFile(tenant, session, wanted.path)).toEqual(done.kind === "stored" && done.file);
      expect(await both[0].uploads.get(tenant, session, wanted.id)).toMatchObject({ state: "file" });
      expect(await complete([tenant, session], wanted.id)).toEqual(done);
    });

    test("are nobody's in another session or tenant", async () => {
      const [tenant, session] = await small();
      const [other, foreign] = await small();
      const id = await announce([tenant, session], "a", 1);
      for (const [of, at] of [
        [other, session],
        [other, foreign],
        [tenant, await newSession(tenant)],
      ] as const) {
        expect(await both[0].uploads.get(of, at, id)).toBeUndefined();
        expect(await both[0].uploads.complete(of, at, id, { replace: true })).toEqual({ kind: "missing" });
        expect(await both[0].uploads.giveUp(of, at, id)).toBeUndefined();
      }
      await expect(both[0].uploads.open(other, session, upload("a", 1), minute)).rejects.toMatchObject({
        code: "session_not_found",
      });
      expect(await both[0].uploads.end(other, id)).toBeUndefined();
      await both[0].uploads.delete(other, id);
      expect(await both[0].uploads.get(tenant, session, id)).toMatchObject({ state: "open" });
    });

    test("hold their room against files and other uploads, and give it back", async () => {
      const [tenant, session] = await small();
      await write([tenant, session], "kept", 500);
      const id = await announce([tenant, session], "a", 1_000);
      expect(await both[1].uploads.open(tenant, session, upload("b", 501), minute)).toEqual({
        kind: "full",
        bytes: 1_500,
        files: 1,
      });
      expect(await write([tenant, session], "b", 501)).toEqual({ kind: "full", bytes: 1_500, files: 1 });
      expect(await write([tenant, session], "b", 500)).toMatchObject({ kind: "stored" });
      // What is replaced is not counted besides.
      await announce([tenant, session], "kept", 0);
      expect(await both[0].uploads.giveUp(tenant, session, id)).toMatchObject({ state: "over" });
      expect(await complete([tenant, session], id, true)).toEqual({ kind: "over" });
      await announce([tenant, session], "c", 1_000);
    });

    test("never take more than there is, ten at once", async () => {
      const [tenant, session] = await small();
      const opened = await Promise.all(
        Array.from({ length: 10 }, (_none, at) =>
          turn(at).uploads.open(tenant, session, upload(`f${at}`, 600), minute),
        ),
      );
      expect(opened.filter(({ kind }) => kind === "open")).toHaveLength(3);
    });

    test("do not take the place of what was written since, unless told to", async () => {
      const [tenant, session] = await small();
      const fresh = await announce([tenant, session], "a", 10);
      await write([tenant, session], "a", 5, "by-hand");
      expect(await complete([tenant, session], fresh)).toEqual({ kind: "changed" });
      const knowing = await announce([tenant, session], "a", 11);
      expect(await complete([tenant, session], knowing)).toMatchObject({ kind: "stored", replaced: "by-hand" });
      expect(await complete([tenant, session], fresh)).toEqual({ kind: "changed" });
      expect(await complete([tenant, session], fresh, true)).toMatchObject({
        kind: "stored",
        replaced: `blob-${knowing}`,
        file: { blobKey: `blob-${fresh}` },
      });
      // Its file was replaced: there is nothing that it could be any more.
      expect(await complete([tenant, session], knowing, true)).toEqual({ kind: "over" });
      const deleted = await announce([tenant, session], "a", 12);
      await both[0].sessions.deleteFile(tenant, session, "a");
      expect(await complete([tenant, session], deleted)).toEqual({ kind: "changed" });
    });

    test("at one path leave one file, whoever completes first", async () => {
      const [tenant, session] = await small();
      const ids = await Promise.all(["a", "a", "a", "a"].map((path, at) => announce([tenant, session], path, 10, at)));
      const done = await Promise.all(ids.map((id, at) => complete([tenant, session], id, false, at)));
      expect(done.map(({ kind }) => kind).toSorted()).toEqual(["changed", "changed", "changed", "stored"]);
      expect(await both[0].sessions.listFiles(tenant, session, "")).toHaveLength(1);
    });

    test("end with their session, also where its name begins anew", async () => {
      const [tenant, session] = await small();
      const id = await announce([tenant, session], "a", 1_500);
      await both[0].sessions.delete(tenant, session);
      await expect(both[0].uploads.open(tenant, session, upload("b", 1), minute)).rejects.toMatchObject({
        code: "session_not_found",
      });
      await both[0].sessions.touch(tenant, session, "key_2", day);
      expect(await complete([tenant, session], id, true)).toEqual({ kind: "over" });
      await announce([tenant, session], "b", 1_500);
    });

    test("do not come to a session that was idle for too long", async () => {
      const tenant = await newTenant({ session_idle_ms: minute });
      const session = await newSession(tenant);
      const id = await announce([tenant, session], "a", 1);
      await instances.run("UPDATE sessions SET last_used_at = last_used_at - 60001 WHERE id = ?", session);
      await expect(complete([tenant, session], id)).rejects.toMatchObject({ code: "session_expired" });
      await expect(both[0].uploads.open(tenant, session, upload("b", 1), minute)).rejects.toMatchObject({
        code: "session_expired",
      });
    });

    test("are cleared by one of several instances when their link has run out, and by another where that one dies", async () => {
      const [tenant, session] = await small();
      const [idle, used, fresh] = [
        await announce([tenant, session], "idle", 1),
        await announce([tenant, session], "used", 2),
        await announce([tenant, session], "fresh", 3),
      ];
      await complete([tenant, session], used);
      await instances.run(
        "UPDATE workspace_uploads SET expires_at = expires_at - 120000 WHERE tenant = ? AND id <> ?",
        tenant,
        fresh,
      );
      const take = async (index: number): Promise<readonly string[]> => {
        const taken = await turn(index).uploads.takeExpired({ limit: 1_000, afterMs: 30_000 });
        return taken.filter((one) => one.tenant === tenant).map(({ id, state }) => `${id} ${state}`);
      };
      const expected = [`${idle} open`, `${used} file`].toSorted();
      const taken = await Promise.all(Array.from({ length: 6 }, (_none, at) => take(at)));
      expect(taken.flat().toSorted()).toEqual(expected);
      expect(await take(0)).toEqual([]);
      await instances.run("UPDATE workspace_uploads SET claimed_until = 1 WHERE tenant = ?", tenant);
      expect((await take(1)).toSorted()).toEqual(expected);
      expect(await both[0].uploads.end(tenant, idle)).toBe(`blob-${idle}`);
      expect(await both[0].uploads.end(tenant, used)).toBeUndefined();
      expect(await complete([tenant, session], idle, true)).toEqual({ kind: "over" });
      await both[1].uploads.delete(tenant, idle);
      expect(await both[0].uploads.get(tenant, session, idle)).toBeUndefined();
    });
  });
}
