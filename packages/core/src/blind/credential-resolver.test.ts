import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { emptyConfig } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CredentialView } from "../ports/credentials.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { Sealer } from "../secrets/sealer.ts";
import { type StoredCredential, credentialAad } from "../secrets/credential.ts";
import { deliveryOf } from "../errors/delivery.ts";
import {
  createCredentialResolver,
  findCredential,
  missingCredentials,
  sealCredential,
  type CredentialContext,
} from "./credential-resolver.ts";

const vault: KeyVault = {
  currentKeyId: "k1",
  wrap: (_tenant, key) => Promise.resolve(Buffer.from(key).toString("base64")),
  unwrap: (_tenant, wrapped) => Promise.resolve(Buffer.from(wrapped, "base64")),
};
const sealer = new Sealer(vault, { now: () => 0, sleep: () => Promise.resolve() });
const wrappedKey = randomBytes(32).toString("base64");
const tenant = "ten_a";

async function seal(value: string, ref: Omit<StoredCredential, "sealed">): Promise<StoredCredential> {
  return { ...ref, sealed: await sealer.seal(tenant, wrappedKey, credentialAad(ref), value) };
}

function contextOf(
  credentials: readonly StoredCredential[],
  more: { userId?: string; inline?: Record<string, string> } = {},
): CredentialContext {
  return {
    tenant,
    config: { ...emptyConfig(tenant), credentials, wrappedKey },
    caller: {
      kind: "key",
      id: "key_1",
      role: "member",
      scopes: [],
      tools: null,
      ...(more.userId === undefined ? {} : { userId: more.userId }),
    },
    ...(more.inline === undefined ? {} : { runtimeConfig: { plugins: [], credentials: more.inline } }),
  };
}
const resolver = createCredentialResolver({ sealer });
const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe(`whose credential is used ${verifies("BLIND-5")}`, () => {
  test("the user's own beats the tenant's, another user's is never used", async () => {
    const stored = [
      await seal("of bob", { name: "KEY", level: "user", userId: "bob", version: 1 }),
      await seal("of all", { name: "KEY", level: "tenant", version: 4 }),
      await seal("of ann", { name: "KEY", level: "user", userId: "ann", version: 2 }),
      await seal("bob only", { name: "OTHER", level: "user", userId: "bob", version: 1 }),
    ];
    const valueFor = async (userId?: string) =>
      (await resolver.resolve(contextOf(stored, userId === undefined ? {} : { userId }), ["KEY"])).get("KEY");
    expect(await valueFor("ann")).toBe("of ann");
    expect(await valueFor("bob")).toBe("of bob");
    expect(await valueFor("eve")).toBe("of all");
    expect(await valueFor()).toBe("of all");
    const ann = contextOf(stored, { userId: "ann" });
    expect(missingCredentials(ann, ["KEY", "OTHER", "NONE"])).toEqual(["OTHER", "NONE"]);
    expect(findCredential(ann, "KEY")).toEqual({ name: "KEY", level: "user", userId: "ann", version: 2 });
    expect(findCredential(contextOf(stored), "KEY")).toEqual({ name: "KEY", level: "tenant", version: 4 });
  });

  test(`what the request brings itself comes first ${verifies("BLIND-7")}`, async () => {
    const stored = [await seal("stored", { name: "KEY", level: "tenant", version: 1 })];
    const context = contextOf(stored, { inline: { KEY: "inline", toString: "odd name" } });
    expect(await resolver.resolve(context, ["KEY", "toString", "constructor"])).toEqual(
      new Map([
        ["KEY", "inline"],
        ["toString", "odd name"],
      ]),
    );
    expect(findCredential(context, "KEY")).toEqual({ name: "KEY", level: "inline" });
  });

  test.each([
    ["another name", { name: "MOVED", level: "tenant", version: 1 }],
    ["another version", { name: "KEY", level: "tenant", version: 2 }],
    ["a user", { name: "KEY", level: "user", userId: "ann", version: 1 }],
  ] as const)(`a value moved to %s does not open and is named ${verifies("BLIND-10")}`, async (_where, row) => {
    const original = await seal("secret", { name: "KEY", level: "tenant", version: 1 });
    const error = await refusal(
      resolver.resolve(contextOf([{ ...row, sealed: original.sealed }], { userId: "ann" }), [row.name]),
    );
    expect(error).toMatchObject({ code: "credential_unreadable", details: { param: row.name } });
    expect(String(error)).toContain(`PUT /v1/credentials/${row.name}`);
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("another tenant's key opens nothing", async () => {
    const stored = await seal("secret", { name: "KEY", level: "tenant", version: 1 });
    const context = contextOf([stored]);
    const error = await refusal(resolver.resolve({ ...context, tenant: "ten_b" }, ["KEY"]));
    expect(error).toHaveProperty("code", "credential_unreadable");
  });
});

describe(`storing a credential ${verifies("BLIND-5")}`, () => {
  function memory() {
    const rows: StoredCredential[] = [];
    return {
      rows,
      conflicts: 0,
      nextVersion() {
        return Promise.resolve(rows.length + 1);
      },
      put(_tenant: string, row: StoredCredential): Promise<CredentialView> {
        if (this.conflicts > 0) {
          this.conflicts -= 1;
          return Promise.reject(new GatewayError("conflict", "taken"));
        }
        rows.push(row);
        const { name, level, version, userId } = row;
        return Promise.resolve({
          id: "cred_1",
          name,
          level,
          userId: userId ?? null,
          version,
          lastUsedAt: null,
          createdAt: 0,
          updatedAt: 0,
        });
      },
    };
  }

  test("seals the value for its row; what is stored does not show it", async () => {
    const credentials = memory();
    const deps = { sealer, credentials };
    const shared = { tenant, wrappedKey, name: "密钥_1", value: "sk-sentinel" };
    expect(await sealCredential(deps, { ...shared, userId: null })).toMatchObject({ level: "tenant", version: 1 });
    expect(await sealCredential(deps, { ...shared, value: "of ann", userId: "ann" })).toMatchObject({
      level: "user",
      userId: "ann",
      version: 2,
    });
    expect(JSON.stringify(credentials.rows)).not.toContain("sentinel");
    expect((await resolver.resolve(contextOf(credentials.rows), ["密钥_1"])).get("密钥_1")).toBe("sk-sentinel");
    expect((await resolver.resolve(contextOf(credentials.rows, { userId: "ann" }), ["密钥_1"])).get("密钥_1")).toBe(
      "of ann",
    );
  });

  test("takes the next version when another writer was first, and gives up at last", async () => {
    const credentials = memory();
    credentials.conflicts = 3;
    const credential = { tenant, wrappedKey, name: "KEY", value: "v", userId: null };
    expect(await sealCredential({ sealer, credentials }, credential)).toMatchObject({ version: 1 });
    credentials.conflicts = 99;
    expect(await refusal(sealCredential({ sealer, credentials }, credential))).toHaveProperty("code", "conflict");
  });

  test("gives up at once where there is no room", async () => {
    let puts = 0;
    const full = new GatewayError("conflict", "at most 200", { param: "name", extra: { limit: 200 } });
    const credentials = {
      ...memory(),
      put: () => {
        puts += 1;
        return Promise.reject(full);
      },
    };
    const credential = { tenant, wrappedKey, name: "KEY", value: "v", userId: null };
    expect(await refusal(sealCredential({ sealer, credentials }, credential))).toBe(full);
    expect(puts).toBe(1);
  });

  test.each([
    ["name", { name: "a/b", value: "v" }],
    ["name", { name: "", value: "v" }],
    ["name", { name: "a\nb", value: "v" }],
    ["value", { name: "KEY", value: "" }],
    ["value", { name: "KEY", value: "v".repeat(65_537) }],
  ])("refuses by the field: %s", async (param, given) => {
    const error = await refusal(
      sealCredential({ sealer, credentials: memory() }, { tenant, wrappedKey, userId: null, ...given }),
    );
    expect(error).toMatchObject({ code: "invalid_request", details: { param } });
  });
});
