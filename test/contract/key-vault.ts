/** What every key vault promises. */
import { randomBytes } from "node:crypto";
import type { KeyVault } from "@toolyard/core/ports/key-vault";
import { describe, expect, test } from "vitest";

/** @param make a vault under a master key of its own */
export function describeKeyVault(name: string, make: () => Promise<KeyVault>): void {
  describe(`key vault: ${name}`, () => {
    test("gives back the key that it wrapped", async () => {
      const vault = await make();
      const key = randomBytes(32);
      expect(Buffer.from(await vault.unwrap("ten_1", await vault.wrap("ten_1", key)))).toEqual(key);
    });

    test("never wraps to the same text twice, nor to a text that shows the key", async () => {
      const vault = await make();
      const key = Buffer.alloc(32, "k");
      const [first, second] = [await vault.wrap("ten_1", key), await vault.wrap("ten_1", key)];
      expect(first).not.toBe(second);
      for (const shown of ["kkkk", key.toString("base64url").slice(0, 16), key.toString("hex").slice(0, 16)]) {
        expect(first).not.toContain(shown);
      }
    });

    test("does not open a key that was wrapped for another tenant", async () => {
      const vault = await make();
      const wrapped = await vault.wrap("ten_1", randomBytes(32));
      await expect(vault.unwrap("ten_2", wrapped)).rejects.toMatchObject({ code: "credential_unreadable" });
    });

    test("does not open a key wrapped under another master key", async () => {
      const wrapped = await (await make()).wrap("ten_1", randomBytes(32));
      await expect((await make()).unwrap("ten_1", wrapped)).rejects.toMatchObject({ code: "credential_unreadable" });
    });

    test.for(["", ".", "nonsense", "a.b.c"])("refuses the text %j", async (wrapped) => {
      const vault = await make();
      await expect(vault.unwrap("ten_1", wrapped)).rejects.toMatchObject({ code: "credential_unreadable" });
    });

    test("does not open a damaged key", async () => {
      const vault = await make();
      const wrapped = await vault.wrap("ten_1", randomBytes(32));
      const other = wrapped.endsWith("A") ? "Q" : "A";
      for (const damaged of [
        wrapped.slice(0, -4),
        `${wrapped.slice(0, -1)}${other}`,
        wrapped.slice(0, wrapped.length / 2),
      ]) {
        await expect(vault.unwrap("ten_1", damaged)).rejects.toMatchObject({ code: "credential_unreadable" });
      }
    });

    test("has an id for its current key, the same each time", async () => {
      const vault = await make();
      expect(vault.currentKeyId).toMatch(/^.+$/);
      expect(vault.currentKeyId).toBe(vault.currentKeyId);
    });
  });
}
