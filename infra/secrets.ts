/** Secrets of a stage: `npx sst secret set AdminKey … --stage …`. They reach functions as settings, encrypted. */
export const adminKey = new sst.Secret("AdminKey");
export const databaseAuthToken = new sst.Secret("DatabaseAuthToken");
/** Of the model back end for tenants without a provider of their own; without it `toolyard/scripted` answers. */
export const openaiApiKey = new sst.Secret("OpenaiApiKey", "");
/** `name=value` pairs for the collector of traces, which mostly hold its key. */
export const otlpHeaders = new sst.Secret("OtlpHeaders", "");
