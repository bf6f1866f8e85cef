/** What is uploaded to become VCP plugins (VCP-24); `folders.ts` reads it. */
import * as z from "zod";
import { isJsonObject, type JsonObject } from "../../json.ts";
import { folderLimits } from "./files.ts";

const fileSchema = z
  .strictObject({
    path: z.string().min(1).max(512).meta({ description: "Below the plugin's folder, with '/'." }),
    text: z.string().optional(),
    base64: z.base64().optional().meta({ description: "Instead of 'text', for a file that is not text." }),
  })
  .refine(({ text, base64 }) => (text === undefined) !== (base64 === undefined), "needs either 'text' or 'base64'");

/** Field `vcp` of an import. */
export const vcpSourceSchema = z
  .strictObject({
    zip: z
      .base64()
      .optional()
      .meta({ description: "A zip with one plugin folder or many, as base64.", contentEncoding: "base64" }),
    manifest: z
      .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
      .optional()
      .meta({ type: "object", description: "A single plugin-manifest.json; its files go into 'files'." }),
    files: z.array(fileSchema).max(folderLimits.files).optional(),
  })
  .refine(({ zip, manifest }) => (zip === undefined) !== (manifest === undefined), {
    error: "needs either 'zip' or 'manifest'",
    path: ["zip"],
  })
  .refine(({ zip, files }) => zip === undefined || files === undefined, {
    error: "goes with 'manifest'; an archive brings its own",
    path: ["files"],
  });
export type VcpSource = z.output<typeof vcpSourceSchema>;
