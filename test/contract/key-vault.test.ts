import { randomBytes } from "node:crypto";
import { createLocalKeyVault, parseMasterKey } from "@toolyard/platform/local/local-key-vault";
import { describe, expect, test } from "vitest";
import { describeKeyVault } from "./key-vault.ts";

describeKeyVault("local master key", async () => createLocalKeyVault({ masterKey: randomBytes(32) }));

describe("rotating the local master key", () => {
  const [old, current] = [randomBytes(32), randomBytes(32)];

  test("keeps keys wrapped under the previous one readable, and wraps under the new one", async () => {
    const before = createLocalKeyVault({ masterKey: old });
    const after = createLocalKeyVault({ masterKey: current, previousKeys: [old] });
    const key = randomBytes(32);
    expect(Buffer.from(await after.unwrap("ten_1", await before.wrap("ten_1", key)))).toEqual(key);
    expect(after.currentKeyId).not.toBe(before.currentKeyId);
    await expect(before.unwrap("ten_1", await after.wrap("ten_1", key))).rejects.toMatchObject({
      code: "credential_unreadable",
    });
  });

  test("a missing master key is named by its id, and nothing of any key is shown", async () => {
    const wrapped = await createLocalKeyVault({ masterKey: old }).wrap("ten_1", randomBytes(32));
    const vault = createLocalKeyVault({ masterKey: current });
    const failure = await vault.unwrap("ten_1", wrapped).catch((error: unknown) => String(error));
    expect(failure).toContain(createLocalKeyVault({ masterKey: old }).currentKeyId);
    expect(failure).toContain("TOOLYARD_MASTER_KEY");
    for (const key of [old, current]) {
      expect(failure).not.toContain(key.toString("hex").slice(0, 12));
      expect(failure).not.toContain(key.toString("base64").slice(0, 12));
    }
  });

  test("the same master key has the same id in every process", () => {
    const id = (): string => createLocalKeyVault({ masterKey: Buffer.alloc(32, 1) }).currentKeyId;
    expect(id()).toBe(id());
    expect(id()).toMatch(/^[0-9a-f]{12}$/);
  });
});

describe("reading a master key from text", () => {
  const key = Buffer.from(Array.from({ length: 32 }, (_, at) => 255 - at * 7));

  test.for([key.toString("hex"), key.toString("base64"), key.toString("base64url"), `${key.toString("base64")}\n`])(
    "takes %j",
    (text) => {
      expect(Buffer.from(parseMasterKey(text, "TOOLYARD_MASTER_KEY"))).toEqual(key);
    },
  );

  test.for(["short", key.toString("hex").slice(2), `${key.toString("base64")}AAAA`, "p@ssw0rd!".repeat(5)])(
    "refuses %j, naming the setting and not quoting the value",
    (text) => {
      const refusal = (): unknown => parseMasterKey(text, "TOOLYARD_MASTER_KEY");
      expect(refusal).toThrow(/^TOOLYARD_MASTER_KEY must be 32 bytes/);
      expect(refusal).not.toThrow(text);
    },
  );

  test("refuses an empty text", () => {
    expect(() => parseMasterKey("", "TOOLYARD_MASTER_KEY")).toThrow("TOOLYARD_MASTER_KEY must be 32 bytes");
  });

  test("a vault takes no key of another length", () => {
    expect(() => createLocalKeyVault({ masterKey: randomBytes(16) })).toThrow("32 bytes; this one has 16");
  });
});
