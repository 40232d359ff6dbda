// Unpacks the Chromium of the package into $TMPDIR.
import chromium from "@sparticuz/chromium";

console.log(await chromium.executablePath());
