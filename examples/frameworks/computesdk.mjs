// A sandbox of Sandjet by ComputeSDK: node computesdk.mjs.
import { sandjet } from "@sandjet/sandbox/computesdk";

const sandbox = await sandjet().sandbox.create({ name: process.env.SESSION });
await sandbox.filesystem.writeFile("numbers.txt", "1\n2\n3\n");
const { stdout, exitCode } = await sandbox.runCommand("awk '{s += $1} END {print s}' numbers.txt");
console.log(`${stdout.trim()} (exit code ${exitCode})`);
await sandbox.destroy();
