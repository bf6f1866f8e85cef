import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { GatewayError } from "../errors/gateway-error.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { Sealer } from "./sealer.ts";

const minuteMs = 60_000;

interface CountingVault extends KeyVault {
  unwraps: number;
  isDown: boolean;
}

/** Like KMS: what was wrapped for one tenant does not open for another. */
function countingVault(): CountingVault {
  const owners = new Map<string, { readonly tenant: string; readonly key: Uint8Array }>();
  return {
    currentKeyId: "k1",
    unwraps: 0,
    isDown: false,
    wrap(tenant, key) {
      const wrapped = randomBytes(8).toString("hex");
      owners.set(wrapped, { tenant, key });
      return Promise.resolve(wrapped);
    },
    unwrap(tenant, wrapped) {
      this.unwraps += 1;
      if (this.isDown) return Promise.reject(new GatewayError("master_key_unavailable", "The vault is away."));
      const owner = owners.get(wrapped);
      if (owner?.tenant !== tenant) return Promise.reject(new GatewayError("credential_unreadable", "Not this one's."));
      return Promise.resolve(owner.key);
    },
  };
}

function startSealer() {
  const vault = countingVault();
  const time = { now: Date.UTC(2026, 0, 1) };
  const clock = { now: () => time.now, sleep: () => Promise.reject(new Error("nobody waits here")) };
  return { vault, time, sealer: new Sealer(vault, clock) };
}

describe("a tenant's data key", () => {
  test("is asked of the vault once for whatever happens in a quarter of an hour, at once or one after the other", async () => {
    const { vault, time, sealer } = startSealer();
    const wrapped = await sealer.newTenantKey("ten_1");
    const seal = (): Promise<string> => sealer.seal("ten_1", wrapped, ["x"], "secret");
    const [sealed] = await Promise.all([seal(), seal(), sealer.hash("ten_1", wrapped, "a")]);
    time.now += 15 * minuteMs - 1;
    expect(await sealer.open("ten_1", wrapped, ["x"], sealed)).toBe("secret");
    expect(vault.unwraps).toBe(1);
  });

  test("is asked for anew after that, although no other tenant comes by", async () => {
    const { vault, time, sealer } = startSealer();
    const wrapped = await sealer.newTenantKey("ten_1");
    const sealed = await sealer.seal("ten_1", wrapped, ["x"], "secret");
    // Used all the time, so that use does not make it last.
    for (let minute = 0; minute < 15; minute += 1) {
      expect(await sealer.open("ten_1", wrapped, ["x"], sealed)).toBe("secret");
      time.now += minuteMs;
    }
    vault.isDown = true;
    await expect(sealer.open("ten_1", wrapped, ["x"], sealed)).rejects.toMatchObject({
      code: "master_key_unavailable",
    });
    vault.isDown = false;
    expect(await sealer.open("ten_1", wrapped, ["x"], sealed)).toBe("secret");
    expect(vault.unwraps).toBe(3);
  });

  test("opens nothing for another tenant, although it is held", async () => {
    const { sealer } = startSealer();
    const wrapped = await sealer.newTenantKey("ten_1");
    await sealer.hash("ten_1", wrapped, "a");
    await expect(sealer.hash("ten_2", wrapped, "a")).rejects.toMatchObject({ code: "credential_unreadable" });
  });
});
