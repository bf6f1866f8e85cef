import { describe, expect, it } from "vitest";
import {
  createMemoryBlobStore,
  createMemorySessions,
  type MemorySessions,
} from "../../../../test/support/memory-ports.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { readAll, type BlobStore } from "../ports/blob-store.ts";
import type { Log } from "../ports/log.ts";
import { createWorkspace, type Workspace } from "./workspace.ts";

const mine = { tenant: "ten_a", session: "s1" };
const limit = 1_000;

interface Room {
  readonly blobs: BlobStore;
  readonly sessions: MemorySessions;
  readonly workspace: Workspace;
  readonly logged: string[];
  now: number;
  readonly keys: () => Promise<string[]>;
}

async function openRoom(change: Partial<BlobStore> = {}): Promise<Room> {
  const blobs = { ...createMemoryBlobStore(), ...change };
  const sessions = createMemorySessions();
  const logged: string[] = [];
  const log: Log = { log: (_level, message) => void logged.push(message) };
  const room: Room = {
    blobs,
    sessions,
    logged,
    now: Date.now(),
    workspace: createWorkspace({
      blobs,
      log,
      clock: { now: () => room.now, sleep: () => Promise.resolve() },
      repos: { sessions },
    }),
    keys: async () => (await blobs.list("")).map((blob) => blob.key),
  };
  await sessions.touch(mine.tenant, mine.session, "key_1", 1_000);
  return room;
}

async function textOf(workspace: Workspace, path: string, range?: { start: number; end?: number }): Promise<string> {
  const { body } = await workspace.read({ ...mine, path }, range);
  return Buffer.from(await readAll(body)).toString("utf8");
}

describe(`workspace files ${verifies("CHAT-8", "CHAT-9")}`, () => {
  it("gives back what was written, whole and by range", async () => {
    const { workspace } = await openRoom();
    const written = await workspace.write({ ...mine, path: "/tmp/data.txt" }, Buffer.from("0123456789"), { limit });
    expect(written).toEqual({ path: "tmp/data.txt", bytes: 10, replaced: false });
    expect(await textOf(workspace, "tmp/data.txt")).toBe("0123456789");
    expect(await textOf(workspace, "tmp/data.txt", { start: 2, end: 5 })).toBe("234");
    expect(await textOf(workspace, "tmp/data.txt", { start: 10 })).toBe("");
  });

  it.each([{ start: 11 }, { start: -1 }, { start: 5, end: 4 }, { start: 0.5 }])(
    "refuses the range %j of ten bytes",
    async (range) => {
      const { workspace } = await openRoom();
      await workspace.write({ ...mine, path: "f" }, Buffer.from("0123456789"), { limit });
      await expect(workspace.read({ ...mine, path: "f" }, range)).rejects.toMatchObject({
        code: "invalid_arguments",
        details: { param: "range" },
      });
    },
  );

  it("keeps sessions and tenants apart", async () => {
    const { workspace, sessions } = await openRoom();
    await sessions.touch("ten_a", "s2", "key_1", 1_000);
    await workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit });
    for (const other of [
      { tenant: "ten_a", session: "s2" },
      { tenant: "ten_b", session: "s1" },
    ]) {
      await expect(workspace.read({ ...other, path: "f" })).rejects.toMatchObject({ code: "file_not_found" });
      await expect(workspace.delete({ ...other, path: "f" })).rejects.toMatchObject({ code: "file_not_found" });
      expect(await workspace.list({ ...other, path: "/" })).toEqual([]);
    }
    expect(await textOf(workspace, "f")).toBe("x");
  });

  it("replaces a file and deletes the blob it had", async () => {
    const { workspace, keys } = await openRoom();
    await workspace.write({ ...mine, path: "f" }, Buffer.from("old"), { limit });
    const replaced = await workspace.write({ ...mine, path: "f" }, Buffer.from("newer"), { limit });
    expect(replaced.replaced).toBe(true);
    expect(await textOf(workspace, "f")).toBe("newer");
    expect(await keys()).toHaveLength(1);
  });

  it("lists a directory and what is below it", async () => {
    const { workspace } = await openRoom();
    for (const path of ["a/1", "a/b/2", "ab", "c"])
      await workspace.write({ ...mine, path }, Buffer.from("x"), { limit });
    const paths = async (path: string): Promise<string[]> =>
      (await workspace.list({ ...mine, path })).map((file) => file.path);
    expect(await paths("/")).toEqual(["a/1", "a/b/2", "ab", "c"]);
    expect(await paths("/a")).toEqual(["a/1", "a/b/2"]);
    expect(await paths("nothing")).toEqual([]);
  });

  it("deletes a file with its blob, once", async () => {
    const { workspace, keys } = await openRoom();
    await workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit });
    await workspace.delete({ ...mine, path: "/f" });
    expect(await keys()).toEqual([]);
    await expect(workspace.delete({ ...mine, path: "f" })).rejects.toMatchObject({ code: "file_not_found" });
  });

  it("reads the new blob where the file is replaced between row and blob", async () => {
    let disturb: (() => Promise<unknown>) | undefined;
    const store = createMemoryBlobStore();
    const { workspace } = await openRoom({
      ...store,
      async get(key, range) {
        const act = disturb;
        disturb = undefined;
        await act?.();
        return store.get(key, range);
      },
    });
    await workspace.write({ ...mine, path: "f" }, Buffer.from("old"), { limit });
    disturb = () => workspace.write({ ...mine, path: "f" }, Buffer.from("new"), { limit });
    expect(await textOf(workspace, "f")).toBe("new");
  });
});

describe(`the size of a workspace ${verifies("CHAT-8", "CHAT-12")}`, () => {
  it("refuses what does not fit, names the setting and leaves nothing behind", async () => {
    const { workspace, keys } = await openRoom();
    await workspace.write({ ...mine, path: "a" }, Buffer.alloc(600), { limit });
    await expect(workspace.write({ ...mine, path: "b" }, Buffer.alloc(500), { limit })).rejects.toMatchObject({
      code: "workspace_full",
      message: expect.stringContaining("workspace_bytes") as string,
      details: { extra: { limit_bytes: 1_000, used_bytes: 600 } },
    });
    expect(await keys()).toHaveLength(1);
    // Its own bytes do not count against the file that replaces them.
    await workspace.write({ ...mine, path: "a" }, Buffer.alloc(1_000), { limit });
  });

  it("stops reading a stream that could never fit", async () => {
    const { workspace, keys } = await openRoom();
    let parts = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        parts += 1;
        yield Buffer.alloc(300);
      }
    }
    await expect(workspace.write({ ...mine, path: "big" }, endless(), { limit })).rejects.toMatchObject({
      code: "workspace_full",
    });
    expect(parts).toBe(4);
    expect(await keys()).toEqual([]);
  });

  it("keeps the old file where a stream breaks off or is given up", async () => {
    const { workspace, keys } = await openRoom();
    await workspace.write({ ...mine, path: "f" }, Buffer.from("old"), { limit });
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("half");
      throw new Error("the client left");
    }
    await expect(workspace.write({ ...mine, path: "f" }, broken(), { limit })).rejects.toThrow("the client left");
    await expect(
      workspace.write({ ...mine, path: "f" }, Buffer.from("new"), { limit, signal: AbortSignal.abort() }),
    ).rejects.toMatchObject({ code: "call_cancelled" });
    expect(await textOf(workspace, "f")).toBe("old");
    expect(await keys()).toHaveLength(1);
  });
});

describe(`large files ${verifies("CHAT-19")}`, () => {
  it("are handed on part by part, each read only when the one before is taken", async () => {
    let ahead = 0;
    let most = 0;
    const store = createMemoryBlobStore();
    const { workspace } = await openRoom({
      ...store,
      async put(key, body, options) {
        for await (const part of body instanceof Uint8Array ? [body] : body) ahead -= part.byteLength;
        return store.put(key, Buffer.from("stands for the whole"), options);
      },
    });
    async function* source(): AsyncGenerator<Uint8Array> {
      const part = Buffer.alloc(65_536);
      for (let sent = 0; sent < 3_200; sent += 1) {
        ahead += part.byteLength;
        most = Math.max(most, ahead);
        yield part;
      }
    }
    const written = await workspace.write({ ...mine, path: "big" }, source(), { limit: 300_000_000 });
    expect(written.bytes).toBe(209_715_200);
    expect(most).toBe(65_536);
  });
});

describe(`what happens when a step fails ${verifies("CHAT-8")}`, () => {
  it("deletes the blob of a write whose row was not stored", async () => {
    const { workspace, sessions, keys } = await openRoom();
    sessions.putFile = () => Promise.reject(new Error("database gone"));
    await expect(workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit })).rejects.toThrow("database gone");
    expect(await keys()).toEqual([]);
  });

  it("keeps the blob where only the answer was lost", async () => {
    const { workspace, sessions } = await openRoom();
    const putFile = sessions.putFile.bind(sessions);
    sessions.putFile = async (...args) => {
      await putFile(...args);
      throw new Error("connection lost");
    };
    await expect(workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit })).rejects.toThrow(
      "connection lost",
    );
    expect(await textOf(workspace, "f")).toBe("x");
  });

  it("does not fail a write because the replaced blob stays", async () => {
    const { workspace, logged } = await openRoom({ delete: () => Promise.reject(new Error("no")) });
    await workspace.write({ ...mine, path: "f" }, Buffer.from("old"), { limit });
    await workspace.write({ ...mine, path: "f" }, Buffer.from("new"), { limit });
    expect(await textOf(workspace, "f")).toBe("new");
    expect(logged).toHaveLength(1);
  });
});

describe(`the end of a session ${verifies("CHAT-8")}`, () => {
  it("takes its files, its blobs and what broken writes left", async () => {
    const room = await openRoom();
    await room.workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit });
    await room.blobs.put("ten_a/workspaces/s1/orphan", Buffer.from("x"));
    await room.blobs.put("ten_a/workspaces/s10/other", Buffer.from("x"));
    room.now += 3_600_000;
    await room.workspace.removeSession(mine);
    expect(await room.keys()).toEqual(["ten_a/workspaces/s10/other"]);
    await expect(room.workspace.removeSession(mine)).rejects.toMatchObject({ code: "session_not_found" });
  });

  it("is nobody else's to bring about", async () => {
    const { workspace } = await openRoom();
    await workspace.write({ ...mine, path: "f" }, Buffer.from("x"), { limit });
    await expect(workspace.removeSession({ tenant: "ten_b", session: "s1" })).rejects.toMatchObject({
      code: "session_not_found",
    });
    expect(await textOf(workspace, "f")).toBe("x");
  });

  it("comes once for each expired session, with two instances at work", async () => {
    const { workspace, sessions, blobs, keys, logged } = await openRoom();
    for (let at = 0; at < 20; at += 1) {
      await sessions.touch("ten_a", `old${at}`, "key_1", 1_000);
      await workspace.write({ tenant: "ten_a", session: `old${at}`, path: "f" }, Buffer.from("x"), { limit });
      sessions.expire("ten_a", `old${at}`);
    }
    await workspace.write({ ...mine, path: "kept" }, Buffer.from("x"), { limit });
    const other = createWorkspace({
      blobs,
      repos: { sessions },
      clock: { now: Date.now, sleep: () => Promise.resolve() },
      log: { log: (_level, message) => void logged.push(message) },
    });
    const counts = await Promise.all([workspace.expireSessions(10), other.expireSessions(100)]);
    expect(counts[0] + counts[1]).toBe(20);
    expect(await keys()).toHaveLength(1);
    expect(await textOf(workspace, "kept")).toBe("x");
    expect(logged).toEqual([]);
  });

  it("of many goes on where the process before was ended, a few at a time", async () => {
    const files = 500;
    const store = createMemoryBlobStore();
    let [left, most, running] = [300, 0, 0];
    const { workspace, sessions, keys } = await openRoom({
      ...store,
      async delete(key) {
        left -= 1;
        if (left < 0) throw new Error("the process is over");
        running += 1;
        most = Math.max(most, running);
        await store.delete(key);
        running -= 1;
      },
    });
    for (let at = 0; at < files; at += 1)
      await workspace.write({ ...mine, path: `f${at}` }, Buffer.from(""), { limit });
    await expect(workspace.removeSession(mine)).rejects.toThrow("the process is over");
    expect(await sessions.listFiles(mine.tenant, mine.session, "")).toHaveLength(300);
    left = 300;
    await workspace.removeSession(mine);
    expect(await keys()).toEqual([]);
    expect(most).toBe(32);
  });

  it("of one does not wait for another's that fails", async () => {
    const store = createMemoryBlobStore();
    const { workspace, sessions, logged } = await openRoom({
      ...store,
      delete: (key) => (key.includes("/bad/") ? Promise.reject(new Error("no")) : store.delete(key)),
    });
    for (const session of ["bad", "good"]) {
      await sessions.touch("ten_a", session, "key_1", 1_000);
      await workspace.write({ tenant: "ten_a", session, path: "f" }, Buffer.from("x"), { limit });
      sessions.expire("ten_a", session);
    }
    expect(await workspace.expireSessions(10)).toBe(2);
    expect(await sessions.get("ten_a", "bad")).toBeDefined();
    expect(await sessions.get("ten_a", "good")).toBeUndefined();
    expect(logged).toHaveLength(1);
  });
});
