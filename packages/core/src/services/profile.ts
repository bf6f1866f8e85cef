/**
 * Profiles: tools of services that send something to people outside (mail, sms). A service is an account, a
 * profile says who may be written to and with what.
 */
import type * as z from "zod";
import type { pluginDefinitionSchema } from "../blind/definition.ts";
import type { JsonObject } from "../json.ts";
import type { ServiceTool } from "./scheme.ts";

type Definition = z.output<typeof pluginDefinitionSchema>;

interface Profile extends Pick<Definition, "title" | "description" | "sensitive" | "roles"> {}

interface ProfileConfig {
  readonly timeout_ms?: number | undefined;
  readonly max_attempts?: number | undefined;
}

/** The tool that a profile is. */
export function profileTool(
  config: ProfileConfig,
  id: string,
  { profile, parameters }: { readonly profile: Profile; readonly parameters: JsonObject },
): ServiceTool {
  return {
    id,
    title: profile.title,
    description: profile.description,
    parameters,
    effect: "write",
    // Neither SMTP nor the vendors know a key: what they get twice they deliver twice.
    repeat: "never",
    outward: true,
    // Of what the tenant's own server or vendor says, statuses and a line of text come back.
    outputTrust: "own",
    sensitive: profile.sensitive,
    roles: profile.roles,
    timeoutMs: config.timeout_ms,
    maxAttempts: config.max_attempts,
  };
}
