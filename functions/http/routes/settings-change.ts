/** Settings as they come in a body, for a tenant's own route and the operator's. */
import { settingsChangeSchema } from "@toolyard/core/tenants/settings";
import { nativeTools } from "@toolyard/core/tools/native/index";
import * as z from "zod";

/** As it is kept a name is any text, since another release may know other tools; a new one must be one of these. */
const nativeToolsField = z
  .array(z.enum(Object.keys(nativeTools)))
  .max(256)
  .nullable()
  .optional();

/** What is named here by name and cannot be made later is checked; of the rest, GET /v1/settings warns. */
export const settingsBody = z.strictObject({ ...settingsChangeSchema().shape, native_tools: nativeToolsField });
