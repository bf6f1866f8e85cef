/** What a function may do. Every grant is written by hand: SST's own links allow `s3:*`, `sqs:*` and the like. */
export type Permission = sst.aws.FunctionPermissionArgs;
