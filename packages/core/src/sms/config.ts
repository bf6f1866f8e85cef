/** What an SMS service is: an account with a vendor, templates, and profiles, which are its tools (SMS-1, SMS-2). */
import * as z from "zod";
import { pluginDefinitionSchema } from "../blind/definition.ts";
import { policyFields, SchemaVariants, variantsKeyword } from "../services/config-fields.ts";
import { addProblems } from "../services/invalid-config.ts";
import { parsePhoneNumber } from "./phone-number.ts";
import type { SmsVendor } from "./vendor.ts";
import { smsVendors, type SmsVendorName } from "./vendors.ts";

const vendorNames = Object.keys(smsVendors) as readonly SmsVendorName[];

const nameSchema = z
  .string()
  .regex(
    /^[\p{L}\p{N}_][\p{L}\p{N}._-]{0,63}$/u,
    "must be a name: letters, digits, '.', '_' and '-', at most 64 characters",
  );

const templateId = z.string().regex(/^[\w.-]{1,64}$/, "must be the id of a template");
const signName = z.string().min(1).max(64).meta({ description: "Signature that stands before the text." });
const parameterName = z.string().min(1).max(64);

const templateSchema = z.strictObject({
  id: templateId.optional().meta({ description: "The vendor's id; absent: the name." }),
  description: z.string().max(1_024).optional().meta({ description: "What it is for, for models." }),
  params: z
    .array(parameterName)
    .max(50)
    .default([])
    .meta({ description: "Names of its parameters, in their order: needed where the vendor knows them by place." }),
  sign_name: signName.optional(),
});

const profileSchema = z.strictObject({
  title: pluginDefinitionSchema.shape.title,
  description: z.string().min(1).max(1_024).default("Sends a text message."),
  template: z
    .string()
    .max(64)
    .optional()
    .meta({ description: "Used where a call gives neither `template` nor `content`." }),
  sign_name: signName.optional().meta({ description: "Instead of the service's." }),
  allowed_recipients: z
    .array(z.string().regex(/^\+[1-9]\d{0,14}$/, "must be '+' and the first digits of a number"))
    .max(1_000)
    .optional()
    .meta({ description: "Numbers, or what they begin with (`+86`); absent: all." }),
  sensitive: pluginDefinitionSchema.shape.sensitive,
  roles: pluginDefinitionSchema.shape.roles,
});

export const smsConfigSchema = z
  .strictObject({
    vendor: z.enum(vendorNames).meta({ description: "Who sends." }),
    account: z.record(z.string(), z.unknown()).meta({
      description: 'Depends on `vendor`. A secret is {"credential": "NAME"}, or a literal that becomes one.',
      "x-depends-on": "vendor",
      [variantsKeyword]: new SchemaVariants(
        Object.fromEntries(Object.entries<SmsVendor>(smsVendors).map(([name, vendor]) => [name, vendor.account])),
      ),
    }),
    sign_name: signName.optional(),
    plain_template: z
      .strictObject({ template: templateId, param: parameterName.default("content") })
      .optional()
      .meta({ description: "Carries texts of calls without a template, for vendors that take templates only." }),
    country_code: z
      .string()
      .regex(/^[1-9]\d{0,2}$/, "must be a country code, without '+'")
      .optional()
      .meta({ description: "Of numbers without one; absent: 86, and none for Twilio." }),
    templates: z
      .record(nameSchema, templateSchema)
      .default({})
      .meta({ description: "Templates by name; where there are some, calls may use no others." }),
    profiles: z
      .record(nameSchema, profileSchema)
      .default({})
      .meta({ description: "Tools: template, signature, who may be written to." }),
    receipts: z.boolean().default(false).meta({
      description: "The vendor tells us what became of messages; a test of the connection says the address for it.",
    }),
    max_recipients: z.int().min(1).max(1_000).default(100).meta({ description: "Recipients of one call." }),
    ...policyFields({
      timeout: "For one attempt; absent: as the tenant has it.",
      attempts: "Sends in all. Only what the vendor has not taken is sent again.",
    }),
  })
  .superRefine(({ templates, profiles }, check) => {
    const names = Object.keys(templates);
    for (const [name, { template }] of Object.entries(profiles)) {
      if (template === undefined || names.length === 0 || names.includes(template)) continue;
      check.addIssue({
        code: "custom",
        message: "is not the name of one of 'templates'",
        path: ["profiles", name, "template"],
      });
    }
  })
  .transform((config, check) => {
    const parsed = vendorOf(config).account.safeParse(config.account);
    if (parsed.success) return { ...config, account: parsed.data };
    addProblems(check, parsed.error, "account");
    return z.NEVER;
  });
export type SmsConfig = z.output<typeof smsConfigSchema>;
export type SmsProfile = SmsConfig["profiles"][string];

export function vendorOf({ vendor }: { readonly vendor: SmsVendorName }): SmsVendor {
  return smsVendors[vendor];
}

/** E.164; undefined where it is none. */
export function numberOf(config: SmsConfig, text: string): string | undefined {
  return parsePhoneNumber(text, config.country_code ?? vendorOf(config).countryCode);
}
