/** What a module is made of: manifest, files and the versions of its values. With another one it is loaded anew. */
import { createHash } from "node:crypto";
import { canonicalJson } from "../../json.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { credentialNamesOf, globalValueName, keysOf } from "../plugins/configuration-names.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";

export function fingerprintOf(
  { credentials }: Pick<TenantConfig, "credentials">,
  { name, manifest, files }: Pick<VcpPlugin, "name" | "manifest" | "files">,
): string {
  const names = new Set([
    ...credentialNamesOf({ name, manifest }),
    ...keysOf(manifest).map(({ key }) => globalValueName(key)),
  ]);
  const values = credentials
    .filter((each) => each.level === "tenant" && names.has(each.name))
    .map((each) => `${each.name} ${each.version}`)
    .sort();
  const parts = canonicalJson([manifest.source, files?.hash ?? null, values]);
  return createHash("sha256").update(parts, "utf8").digest("hex").slice(0, 32);
}
