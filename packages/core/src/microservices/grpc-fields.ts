/** What the configuration of a service that speaks gRPC has beside that of the others. */
import * as z from "zod";
import { executionFields, pluginDefinitionSchema } from "../blind/definition.ts";

/** Text in base64; descriptors are part of what is known of the tenant everywhere, so they are kept small. */
const largestDescriptors = 1_000_000;

const serviceNameSchema = z
  .string()
  .max(256)
  .regex(/^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$/, "must be the full name of a service: package.Service");

export const methodPathSchema = z
  .string()
  .max(320)
  .regex(/^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\/[A-Za-z_]\w*$/, "must be package.Service/Method");

export const grpcField = z
  .strictObject({
    descriptors: z
      .string()
      .max(largestDescriptors, `must have ${largestDescriptors} characters at most; leave out what no method needs`)
      .regex(/^[A-Za-z0-9+/]+={0,2}$/, "must be base64")
      .optional()
      .meta({
        description:
          "FileDescriptorSet in base64 (protoc --include_imports --include_source_info --descriptor_set_out); absent: the server is asked by reflection.",
      }),
    descriptor_set: z
      .string()
      .regex(/^fds_[0-9a-f]{40}$/, "must be the id of a descriptor set: fds_…")
      .optional()
      .meta({
        description: "Id of a set that was uploaded with POST /v1/descriptor-sets, instead of `descriptors`.",
      }),
    services: z
      .array(serviceNameSchema)
      .min(1)
      .max(100)
      .optional()
      .meta({ description: "gRPC services whose methods are tools; absent: all." }),
    emit_defaults: z
      .boolean()
      .default(true)
      .meta({ description: "Write fields of answers that are not set, too, with their defaults." }),
  })
  .meta({ description: "Of services that speak gRPC." });

/** A method that is to have another id than `package.Service/Method`, or another policy. */
export const methodSchema = z.strictObject({
  method: methodPathSchema.meta({ description: "What is called.", example: "loyalty.v1.Customers/List" }),
  title: pluginDefinitionSchema.shape.title,
  description: pluginDefinitionSchema.shape.description.optional(),
  effect: executionFields.shape.effect.meta({
    description: "Absent: `read` where the method says that it has no side effects, else `write`.",
  }),
  max_messages: z
    .int()
    .min(1)
    .max(100_000)
    .optional()
    .meta({ description: "Answers of a stream after which no more are read." }),
  timeout_ms: executionFields.shape.timeout_ms,
  max_attempts: executionFields.shape.max_attempts,
  sensitive: pluginDefinitionSchema.shape.sensitive,
  roles: pluginDefinitionSchema.shape.roles,
});
export type ConfiguredMethod = z.output<typeof methodSchema>;
