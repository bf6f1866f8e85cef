import { describe, expect, test } from "vitest";
import type { Database, Shards } from "../database.ts";
import { everyShard } from "./every-shard.ts";

const away = new Error("away");
const unused = (): never => {
  throw new Error("not of this test");
};

function shardsOf(...names: readonly string[]): Shards & { readonly work: (database: Database) => Promise<string> } {
  const databases = names.map((): Database => ({ batch: unused, close: unused }));
  return {
    directory: databases[0] ?? unused(),
    databaseFor: unused,
    all: () => databases,
    work: async (database) => {
      const name = names[databases.indexOf(database)] ?? "";
      if (name.startsWith("away")) throw away;
      return name;
    },
  };
}

describe("work in every database", () => {
  test("is done in those that can be reached", async () => {
    const shards = shardsOf("a", "away", "b");
    expect(await everyShard(shards, shards.work)).toEqual(["a", "b"]);
  });

  test("fails where none can be reached", async () => {
    const shards = shardsOf("away 1", "away 2");
    await expect(everyShard(shards, shards.work)).rejects.toBe(away);
  });
});
