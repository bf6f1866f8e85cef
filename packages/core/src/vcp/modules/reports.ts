/**
 * How held modules are, as the node that holds them last said (VCP-23). Written where something has changed; a blob
 * each, since it is read only when somebody looks.
 */
import * as z from "zod";
import type { AdapterDeps } from "../../deps.ts";
import { parseJson } from "../../json.ts";
import { readAll, tenantKey } from "../../ports/blob-store.ts";

export const moduleReportSchema = z.strictObject({
  plugin: z.string().max(64),
  fingerprint: z.string().max(64),
  state: z.enum(["starting", "running", "failed"]),
  /** Why it failed. */
  message: z.string().max(2_000).nullable(),
});
export type ModuleReport = z.infer<typeof moduleReportSchema>;

const keptSchema = moduleReportSchema.extend({ node: z.string(), at: z.number() });
export type KeptReport = z.infer<typeof keptSchema>;

type ReportDeps = Pick<AdapterDeps, "blobs" | "clock">;

function reportKey(tenant: string, plugin: string): string {
  // Names may have any letters; keys may not.
  return tenantKey(tenant, "vcp-modules", `${Buffer.from(plugin, "utf8").toString("hex")}.json`);
}

export async function keepReports(
  { blobs, clock }: ReportDeps,
  tenant: string,
  node: string,
  reports: readonly ModuleReport[],
): Promise<void> {
  await Promise.all(
    reports.map((report) => {
      const kept: KeptReport = { ...report, node, at: clock.now() };
      const body = Buffer.from(JSON.stringify(kept), "utf8");
      return blobs.put(reportKey(tenant, report.plugin), body, { mediaType: "application/json" });
    }),
  );
}

export async function readReport(
  { blobs }: Pick<ReportDeps, "blobs">,
  tenant: string,
  plugin: string,
): Promise<KeptReport | undefined> {
  const blob = await blobs.get(reportKey(tenant, plugin));
  if (blob === undefined) return undefined;
  const parsed = keptSchema.safeParse(parseJson(Buffer.from(await readAll(blob.body)).toString("utf8")));
  return parsed.success ? parsed.data : undefined;
}
