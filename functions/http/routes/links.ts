/** What routes that give links to blobs have in common (CHAT-19). */
import type { PresignedRequest } from "@toolyard/core/ports/blob-store";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { timeSchema } from "./shared.ts";

export const defaultExpiresInMs = 900_000;

export const expiresInField = z
  .int()
  .min(1_000)
  .max(3_600_000)
  .default(defaultExpiresInMs)
  .meta({ description: "How long the link can be followed; an hour at most." });

export const linkSchema = z
  .strictObject({
    method: z.enum(["GET", "PUT"]),
    url: z.url().meta({ description: "Needs no key, and is a secret while it lasts." }),
    headers: z.record(z.string(), z.string()).meta({ description: "To be sent exactly so, and no key beside them." }),
  })
  .meta({ id: "Link", description: "A request that the blob store answers." });

export const downloadSchema = z.strictObject({
  object: z.literal("download"),
  bytes: z.int(),
  media_type: z.string(),
  request: linkSchema,
  expires_at: timeSchema.meta({ description: "Until when the link can be followed." }),
});

export function viewDownload(
  request: PresignedRequest,
  { bytes, mediaType, expiresAt }: { readonly bytes: number; readonly mediaType: string; readonly expiresAt: number },
): z.output<typeof downloadSchema> {
  return {
    object: "download",
    bytes,
    media_type: mediaType,
    request: { ...request, headers: { ...request.headers } },
    expires_at: toRfc3339(expiresAt),
  };
}
